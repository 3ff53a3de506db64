"""The oracle that runs the model's own processor.

It is not the engine: it has no context length, places images by the processor's rules, and gives no
ranges. docs/new-model.md lists where it is known to differ from the engine.
Source: transformers ``processing_utils.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from mmroute.chat.template import ChatTemplate
from mmroute.engines.vllm.templates import compile_template
from mmroute.errors import install_command, quoted
from mmroute.lab.parity.cases import Case, Outcome, UndecidedError
from mmroute.lab.parity.oracles.common import OracleError, answered, ask, prompt_field
from mmroute.lab.parity.oracles.pictures import pictures, split_pictures, with_pictures
from mmroute.model_directory import ModelFiles

_INSTALL: Final = install_command("validate")
_ROLES: Final = ("system", "user", "assistant")
_SHOWN: Final = 300
_OWN_ARGUMENTS: Final = frozenset({
    "add_special_tokens", "audio", "images", "return_tensors", "text", "videos",
})  # fmt: skip


class TransformersOracle:
    """`AutoProcessor`, which renders, encodes and expands."""

    name = "transformers"
    running = None  # it is not an engine

    def __init__(self, files: ModelFiles, *, trust_remote_code: bool = False) -> None:
        """Load the processor."""
        try:
            from transformers import AutoProcessor, ProcessorMixin  # large, and optional
        except ImportError as error:
            raise OracleError(f"transformers is not installed: {_INSTALL}") from error
        self.version = f"{version('transformers')}, tokenizers {version('tokenizers')}"
        try:
            self._processor: Any = AutoProcessor.from_pretrained(
                str(files.root) if files.commit is None else files.name,
                revision=files.commit,
                trust_remote_code=trust_remote_code,
            )
        except Exception as error:  # remote code, torch, or files may be missing
            what = " ".join(str(error).split())[:_SHOWN]
            raise OracleError(
                f"the processor of {files.name} cannot be loaded: {what}. {_INSTALL} brings what "
                "processors need, and --trust-remote-code lets their own code run"
            ) from error
        if not isinstance(self._processor, ProcessorMixin):  # remote code that may not run
            found = type(self._processor).__name__
            raise OracleError(f"the processor of {files.name} cannot be loaded, only a {found}")
        self._template: ChatTemplate | None = None
        for owner in (self._processor, getattr(self._processor, "tokenizer", None)):
            text = getattr(owner, "chat_template", None)
            if self._template is None and isinstance(text, str):
                self._renderer: Any = owner
                self._template = compile_template(text, "the processor")
        parameters = inspect.signature(self._processor.__call__).parameters.values()
        self._takes_options = any(p.kind is p.VAR_KEYWORD for p in parameters)

    def answer(self, case: Case) -> Outcome:
        # Remote code may not take the arguments that the library's own processors take.
        return ask(lambda: self._answer(case.request), TypeError)

    def _answer(self, request: Mapping[str, Any]) -> Outcome:
        match prompt_field(request):
            case "messages":
                text, images = self._render(request)
            case "prompt":
                text, images = request["prompt"], pictures(request.get("images"))
            case _:
                raise UndecidedError("a processor takes text, not token IDs")
        self._check_placeholders(text, len(images))
        ids = self._encode(text, images, request)
        if min(ids, default=0) < 0:
            raise UndecidedError("the processor marks image positions by negative numbers")
        return answered(ids, ranges=None)

    def _render(self, request: Mapping[str, Any]) -> tuple[str, list[Any]]:
        from transformers.image_utils import load_image

        if request.get("tools") is not None:
            raise UndecidedError("tools: transformers leaves open how they reach a template")
        if request.get("reasoning_effort") is not None or request.get("documents") is not None:
            raise UndecidedError("reasoning_effort and documents are fields of the engine's API")
        if self._template is None:
            raise UndecidedError("the processor has no chat template")
        messages, urls = split_pictures(with_pictures(request["messages"], request.get("images")))
        as_parts = self._template.content_format == "openai"
        if urls and not as_parts:
            raise UndecidedError(
                "the chat template takes text only, and transformers has no rule for images in it"
            )
        variables = request.get("chat_template_kwargs") or {}
        if "chat_template" in variables:
            raise UndecidedError("chat_template_kwargs holds another template")
        text = self._renderer.apply_chat_template(
            [_message(message, as_parts=as_parts) for message in messages],
            **{
                **variables,
                "tokenize": False,
                "add_generation_prompt": request.get("add_generation_prompt", True),
                "continue_final_message": request.get("continue_final_message", False),
            },
        )
        return text, [load_image(url) for url in urls]

    def _check_placeholders(self, text: str, images: int) -> None:
        """Leave requests with surplus placeholders undecided: processors have no rule for them."""
        if not images:
            return
        names = ("boi_token", "image_token")  # of Gemma's processor, both
        tokens = [getattr(self._processor, name, None) for name in names]
        placeholder = next((token for token in tokens if isinstance(token, str)), None)
        if placeholder is None:
            raise UndecidedError("the processor does not say what its placeholder is")
        if text.count(placeholder) != images:
            raise UndecidedError(
                f"{text.count(placeholder)} placeholders for {images} images: a processor has no "
                "rule for them"
            )

    def _encode(self, text: str, images: list[Any], request: Mapping[str, Any]) -> list[int]:
        overrides = request.get("mm_processor_kwargs") or {}
        reserved = _OWN_ARGUMENTS & overrides.keys()
        if reserved:
            raise UndecidedError(f"mm_processor_kwargs sets {', '.join(sorted(reserved))}")
        options = {"add_special_tokens": request.get("add_special_tokens", False)}
        if not self._takes_options and not options.pop("add_special_tokens"):
            raise UndecidedError("the processor adds special tokens, and has no option against it")
        # The list is flat, because LLaVA-OneVision's processor counts fewer tokens for a nested
        # one. The text is no list, because remote code may not accept one.
        found = self._processor(text=text, images=images or None, **options, **overrides)
        return [int(token_id) for token_id in found["input_ids"][0]]


def _message(message: Any, *, as_parts: bool) -> Any:
    """A message in the form that processors document: with parts if the template reads parts."""
    if not isinstance(message, Mapping):
        return message
    content = message.get("content")
    role = message.get("role")
    if message.get("tool_calls") or role not in _ROLES:
        raise UndecidedError(
            f"tool calls, or role {quoted(role)}: transformers leaves open their form"
        )
    parts = content if isinstance(content, list) else ()
    if not all(isinstance(p, Mapping) and p.get("type") in ("text", "image") for p in parts):
        raise UndecidedError(
            "a part that is neither text nor image: transformers has no rule for it"
        )
    if as_parts and isinstance(content, str):
        content = [{"type": "text", "text": content}]
    elif not as_parts and isinstance(content, list):
        if len(parts) != 1 or not isinstance(parts[0].get("text"), str):
            what = "the chat template takes one text, and the message has several parts"
            raise UndecidedError(what)
        content = parts[0]["text"]
    return {**message, "content": content}
