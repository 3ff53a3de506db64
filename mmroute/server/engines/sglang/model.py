"""A loaded model, with what SGLang's routes need to answer for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

import jinja2.ext
import jinja2.sandbox

from mmroute.chat.template_files import default_template
from mmroute.engines.sglang.profile import RESERVED, SGLANG
from mmroute.errors import InexactError, Reason
from mmroute.hashing.hashes import HashSettings
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import find_model
from mmroute.normalizer import Normalizer
from mmroute.server.engines.sglang.thinking import (
    ALWAYS,
    MISTRAL,
    Switch,
    switch_of,
    template_kwargs,
)

if TYPE_CHECKING:
    from mmroute.engines.sglang.settings import SglangSettings

_SENTINEL: Final = "__sglang_inline_system_sentinel__"


@dataclass(frozen=True, slots=True)
class ChatRules:
    """The rules by which requests of other APIs become chats.

    Attributes:
        inline_system: whether the chat template shows system messages behind the first message.
        reasoning_parser: the parser of thoughts; None if there is none.
        tool_call_parser: the parser of calls; None if there is none.
        switch: how the chat template switches thoughts on and off; None if it does not tell.
        has_own_effort: whether the server has an effort for requests without one.
    """

    inline_system: bool
    reasoning_parser: str | None
    tool_call_parser: str | None
    switch: Switch | None
    has_own_effort: bool

    def thinking(self, *, enabled: bool) -> dict[str, Any]:
        """The variables of the template for a request that says whether to think."""
        parser, switch = self.reasoning_parser, self.switch
        if parser is not None and switch is None and (known := _parsers().get(parser)):
            switch = known.switch
        return template_kwargs(parser, switch, enabled=enabled)

    def thought(self, text: str) -> str:
        """What earlier thoughts become in a prompt; empty if they are left out.

        Source: SGLang 0.5.23 ``srt/entrypoints/openai/serving_chat.py`` (`wrap_reasoning_history`).
        """
        if self.reasoning_parser is None:
            return ""
        parser = _parsers().get(self.reasoning_parser)
        if parser is None:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                f"thinking: what --reasoning-parser {self.reasoning_parser} makes of it in a "
                "history is not covered",
            )
        return f"{parser.begin}{text}\n{parser.end}"


class _Parser(NamedTuple):
    """What is known of a parser of thoughts."""

    begin: str  # what stands before thoughts
    end: str
    default: str | None  # how thoughts are switched where the template does not say it

    @property
    def switch(self) -> Switch:
        if self.default in (ALWAYS, MISTRAL, None):
            return Switch(rule=self.default)
        return Switch(self.default.removeprefix("explicit_"))


@cache
def _parsers() -> Mapping[str, _Parser]:
    file = resources.files("mmroute.server.engines.sglang") / "reasoning_parsers.json"
    entries = json.loads(file.read_text(encoding="utf-8"))["entries"]
    return {e["parser"]: _Parser(e["begin"], e["end"], e["default"]) for e in entries}


@dataclass(frozen=True, slots=True)
class SglangModel:
    """A model that can answer. See `mmroute.server.api.ServedModel`."""

    name: str
    normalizer: Normalizer
    rules: ChatRules
    tokenizer_limit: int  # the longest text for the tokenizer, as its files say

    @classmethod
    def of(cls, normalizer: Normalizer, name: str = "") -> Self:
        """A model that was loaded, by its first served name."""
        model = normalizer.model
        settings = cast("SglangSettings", model.settings)
        # By its commit these are the same files, and the hub is not asked again.
        files = find_model(model.name, revision=model.commit)
        template = (model.chat.templates or {}).get("default")
        source = template.source if template else ""
        if model.tokenizer.chat_encoder is not None and (found := default_template(files)):
            source = found[0]  # which is read for this alone
        rules = ChatRules(
            inline_system=_shows_inline_system(source),
            reasoning_parser=settings.reasoning_parser,
            tool_call_parser=settings.tool_call_parser,
            switch=switch_of(source),
            has_own_effort="reasoning_effort" in settings.chat_template_kwargs,
        )
        limit = files.object("tokenizer_config.json").get("model_max_length")
        if type(limit) is not int or not -(1 << 63) <= limit < 1 << 64:
            limit = model.max_model_len + RESERVED
        return cls(name or model.model_id, normalizer, rules, limit)

    @property
    def tokenizer_info(self) -> Mapping[str, Any]:
        return {}  # SGLang has no such route

    @property
    def model(self) -> ResolvedModel:
        return self.normalizer.model

    def check_version(self) -> None:
        """Refuse an earlier version, whose rules for some routes were not compared."""
        release, newest = self.model.engine.release, SGLANG.release
        if release.era != newest.era:
            raise InexactError(
                Reason.UNSUPPORTED_FIELD,
                f"the rules of this route are covered for {newest.label}, not for {release.label}",
            )

    def with_hash_settings(self, settings: HashSettings) -> Self:
        hashing = replace(self.model.hashing, settings=settings)
        model = replace(self.model, hashing=hashing)
        return replace(self, normalizer=replace(self.normalizer, model=model))


def _shows_inline_system(template: str) -> bool:
    """Whether a template shows a system message in the middle of a chat, as the engine tries it.

    Source: SGLang 0.5.23 ``srt/parser/template_detection.py`` (`detect_inline_system_support`).
    """
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    messages = [
        {"role": "system", "content": "t"},
        {"role": "user", "content": "t"},
        {"role": "system", "content": _SENTINEL},
        {"role": "user", "content": "t"},
    ]
    try:
        shown = environment.from_string(template).render(
            messages=messages, add_generation_prompt=False
        )
    except Exception:  # noqa: BLE001 - whatever a template raises
        return False
    return _SENTINEL in shown
