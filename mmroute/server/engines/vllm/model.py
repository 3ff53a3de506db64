"""A loaded model, with the values that vLLM's API needs to answer for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Self, TypeAlias

from mmroute.engines.vllm.settings import as_vllm
from mmroute.hashing.hashes import HashSettings
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import find_model
from mmroute.normalizer import Normalizer
from mmroute.release import PYTHON
from mmroute.requests.request import Request
from mmroute.server import api
from mmroute.server.engines.vllm.bodies.messages_rules import MessagesRules, messages_rules
from mmroute.server.engines.vllm.bodies.rules import ChatRules
from mmroute.server.engines.vllm.sampling import SamplingDefaults, sampling_defaults

_NO_LIMIT: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that can answer.

    Attributes:
        name: its first served name, by which metrics and logs know it.
        model: the model.
        normalizer: the normalizer that answers.
        unlimited: the same normalizer without a limit for prompts, for ``/tokenize``.
        defaults: the defaults of sampling parameters.
        chats: the rules of the API for the model's chats.
        messages_rules: the rules by which requests of the Anthropic Messages API become chats. They
            are found out by rendering chats when the first one asks.
        tool_server: whether the engine has a tool server, which describes tools in prompts.
        tokenizer_info: the answer of ``/tokenizer_info``.
    """

    name: str
    model: ResolvedModel
    normalizer: Normalizer
    unlimited: Normalizer
    defaults: SamplingDefaults
    chats: ChatRules
    messages_rules: Callable[[], MessagesRules]
    tool_server: bool
    tokenizer_info: Mapping[str, Any]

    @classmethod
    def of(cls, normalizer: Normalizer, name: str = "") -> Self:
        """A model that was loaded.

        Args:
            normalizer: the model's normalizer.
            name: its first served name; empty for the engine's own.

        Raises:
            ModelError: its files are not there any more.
        """
        model = normalizer.model
        settings = as_vllm(model.settings)
        name = name or next(iter(settings.served_names), model.model_id)
        # By its commit these are the same files, and the hub is not asked again.
        directory = find_model(model.name, revision=model.commit)
        untimed = replace(normalizer, watch=None)
        rust = model.engine.release.frontend != PYTHON

        def prompt_of(request: Request) -> bytes | None:
            routing = untimed.answer(request)
            return routing.token_ids.tobytes() if routing.exact else None

        return cls(
            name,
            model,
            normalizer,
            unlimited=replace(normalizer, model=replace(model, max_model_len=_NO_LIMIT)),
            defaults=sampling_defaults(directory.object("generation_config.json")),
            chats=ChatRules(
                harmony=model.family.chat.renderer == "harmony" and not rust,
                rust=rust,
                templated=model.chat.templates is not None,
                excludes_tools=settings.excludes_tools,
                tool_parser=settings.tool_parser,
                trusts_template=settings.trust_request_chat_template,
            ),
            messages_rules=cache(
                lambda: messages_rules(model.chat, prompt_of, settings.without_effect)
            ),
            tool_server="--tool-server" in settings.without_effect,
            tokenizer_info=_tokenizer_info(directory.object("tokenizer_config.json")),
        )

    def with_hash_settings(self, settings: HashSettings) -> Self:
        """The same model with other values on which block hashes depend."""
        hashing = replace(self.model.hashing, settings=settings)
        model = replace(self.model, hashing=hashing)
        return replace(
            self,
            model=model,
            normalizer=replace(self.normalizer, model=model),
            unlimited=replace(self.unlimited, model=replace(model, max_model_len=_NO_LIMIT)),
        )

    @property
    def max_model_len(self) -> int:
        """The number of tokens of the longest context."""
        return self.model.max_model_len


def _tokenizer_info(config: Mapping[str, Any]) -> dict[str, Any]:
    """``tokenizer_config.json`` as vLLM shows it: added tokens as texts, and no file names.

    Source: vLLM ``entrypoints/serve/tokenize``, and its answers as observed.
    """
    left_out = ("tokenizer_class", "vocab_file", "merges_file")
    name = str(config.get("tokenizer_class", "MistralTokenizer")).removesuffix("Fast")
    shown = {key: _plain(value) for key, value in config.items() if key not in left_out}
    return {"tokenizer_class": name, **shown}


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        if "content" in value:
            return value["content"]
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


Call: TypeAlias = api.Call[LoadedModel]
"""The inputs of an answer, beside the body of the request."""
