"""Renders chats of models that have a chat template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mmroute.chat import template_parameters
from mmroute.chat.cache import ChatCache, ChatPrefix
from mmroute.chat.conversation import Rendered
from mmroute.chat.renderer import Chat, ParsedChat
from mmroute.chat.template import ChatTemplate
from mmroute.engines.vllm.defaults import own_template_kwargs
from mmroute.engines.vllm.message_schema import uncovered
from mmroute.engines.vllm.messages import parse_chat, to_conversation
from mmroute.engines.vllm.templates import compile_template
from mmroute.engines.vllm.tools import normalize_tools
from mmroute.errors import InexactError, Reason, invalid, quoted
from mmroute.requests.items import Items, Modality
from mmroute.requests.request import Request

_UNSET: Final = (None, "auto")
# They make the engine fail, or do what no server allows by default. Its function takes tools from
# the request, and calls the conversation "messages" before.
_REFUSED_KWARGS: Final = (template_parameters.VLLM - {"tools"}) | {
    "messages", "return_assistant_tokens_mask", "sanitize_control_tokens", "self",
}  # fmt: skip
# Without effect where they are false.
_SWITCHES: Final = frozenset({
    "return_assistant_tokens_mask", "sanitize_control_tokens", "tokenize",
})  # fmt: skip
_OF_ENCODING: Final = frozenset({
    "max_length", "padding", "return_dict", "return_tensors", "tokenizer_kwargs", "truncation",
})  # fmt: skip
OWN_PARAMETERS: Final = template_parameters.TRANSFORMERS - _REFUSED_KWARGS
"""Parameters of transformers' apply_chat_template: never variables of a template."""


@dataclass(frozen=True, slots=True)
class HfChat(Chat):
    """Renders chats with the model's template, as vLLM does."""

    # The template for requests without tools; None if the model has none.
    template: ChatTemplate | None
    # The template for requests with tools. It is never the processor's.
    tool_template: ChatTemplate | None
    # The texts of `bos_token` and the like, which templates may write.
    special_tokens: Mapping[str, str]
    # The text that a "string" template gets in front for one item, by modality.
    placeholders: Mapping[Modality, str]

    @property
    def content_format(self) -> str:
        return "string" if self.template is None else self.template.content_format

    @property
    def origins(self) -> Mapping[str, str]:
        return {
            "chat_template": self.template.origin if self.template else "none",
            "tool_chat_template": self.tool_template.origin if self.tool_template else "none",
            "content_format": "the chat template's syntax tree",
        }

    @property
    def templates(self) -> Mapping[str, ChatTemplate]:
        found = {"default": self.template, "tool_use": self.tool_template}
        return {name: template for name, template in found.items() if template is not None}

    @property
    def texts(self) -> Mapping[str, str]:
        """The templates, by the name under which `templates` has them."""
        return {name: template.source for name, template in self.templates.items()}

    def with_template(self, source: str, origin: str) -> HfChat:
        template = compile_template(source, origin)
        return replace(self, template=template, tool_template=template)

    def with_content_format(self, content_format: str) -> HfChat:
        template, tool_template = (
            None if template is None else replace(template, content_format=content_format)
            for template in (self.template, self.tool_template)
        )
        return replace(self, template=template, tool_template=tool_template)

    def read(self, request: Request, cache: ChatCache | None = None) -> ParsedChat:
        if not request.messages:
            raise invalid("messages must not be empty")
        return parse_chat(request, None if cache is None else self._prefix(request, cache))

    def _prefix(self, request: Request, cache: ChatCache) -> ChatPrefix | None:
        """The messages that the cache knows; None where the chat is to be rendered whole."""
        if not cache.is_long_enough(request.messages):
            return None
        # Both change the prompt beyond what the template writes.
        if request.continue_final_message or request.add_special_tokens:
            return None
        try:
            template, variables = self._template_of(request)
        except InexactError:  # said when the messages are checked
            return None
        return cache.begin(
            template,
            {**variables, "add_generation_prompt": request.add_generation_prompt},
            request.messages,
        )

    def render(self, chat: ParsedChat, items: Items, request: Request) -> Rendered:
        if chat.media:
            check_text_is_handed_on(request)
        template, variables = self._template_of(request)
        conversation = to_conversation(
            chat, content_format=template.content_format, placeholders=self.placeholders
        )
        messages = conversation
        # The cache keeps no chat with such a message, so the messages that it knows are others.
        if not template.knows_developer and "developer" in [m["role"] for m in chat.messages]:
            messages = _developer_to_system(conversation)
        if chat.prefix is not None and messages is conversation:
            return chat.prefix.render(conversation, chat.contents)
        return template.render(
            messages,
            variables=variables,
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
        )

    def _template_of(self, request: Request) -> tuple[ChatTemplate, dict[str, Any]]:
        """The template of a request, and what it may read beside the messages."""
        kwargs = template_kwargs(request)
        tools = tools_of(kwargs, request)
        template = self.template if tools is None else self.tool_template
        if template is None:
            kind = "without tools" if tools is None else "with tools"
            raise InexactError(
                Reason.CHAT_TEMPLATE_MISSING,
                f"the model has no chat template that the engine takes for requests {kind}; send "
                "a rendered `prompt` instead",
            )
        variables: dict[str, Any] = dict(self.special_tokens)
        if kwargs:
            names = (kwargs.keys() & template.variables) - OWN_PARAMETERS
            variables |= {name: kwargs[name] for name in names}
        variables |= {"tools": tools, "documents": objects_of(kwargs, "documents")}
        return template, variables


def template_kwargs(request: Request, refused: frozenset[str] = _REFUSED_KWARGS) -> dict[str, Any]:
    """The variables that a request has for a template, without those that mean "not set"."""
    own = own_template_kwargs(
        request.chat_template_kwargs, request.reasoning_effort, request.documents
    )
    if not own:
        return {}
    # null and "auto" mean "not set" to the engine, but for what it looks for before that.
    kwargs = {k: v for k, v in own.items() if v not in _UNSET or (v and k == "chat_template")}
    for name in _SWITCHES & kwargs.keys():
        if not kwargs[name]:  # as without it
            del kwargs[name]
    if kwargs.pop("tokenize", None) and (
        request.add_special_tokens or _OF_ENCODING & kwargs.keys()
    ):
        raise uncovered("chat_template_kwargs.tokenize is not covered beside options of encoding")
    if found := refused & kwargs.keys():
        raise invalid(f"chat_template_kwargs must not set {', '.join(sorted(found))}")
    return kwargs


def check_text_is_handed_on(request: Request) -> None:
    """Refuse a variable by which the engine encodes the text before it looks at items."""
    if request.chat_template_kwargs.get("tokenize") not in (*_UNSET, False):
        raise uncovered("chat_template_kwargs.tokenize is not covered for this chat")


def tools_of(kwargs: Mapping[str, Any], request: Request) -> list[dict[str, Any]] | None:
    """The tools that a template gets: those in its variables, or else those of the request."""
    tools = normalize_tools(request.tools)
    return objects_of(kwargs, "tools") if "tools" in kwargs else tools


def objects_of(kwargs: Mapping[str, Any], name: str) -> list[dict[str, Any]] | None:
    """The tools or documents among the variables of a template."""
    objects = kwargs.get(name)
    if objects is None:
        return None
    if isinstance(objects, list) and all(isinstance(each, dict) for each in objects):
        return objects
    wrong = f"chat_template_kwargs.{name} must be a list of objects, found {quoted(objects)}"
    raise uncovered(wrong) if objects in ("", {}) else invalid(wrong)


def _developer_to_system(conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rename the role for templates that do not know it, and merge all system messages."""
    renamed = [
        {k: v for k, v in message.items() if k != "tools"} | {"role": "system"}
        if message["role"] == "developer"
        else message
        for message in conversation
    ]
    at = [i for i, message in enumerate(renamed) if message["role"] == "system"]
    if at == [0]:
        return renamed
    texts = [text for i in at if (text := _joined_text(renamed[i]["content"]))]
    others = [message for message in renamed if message["role"] != "system"]
    return [{"role": "system", "content": "\n\n".join(texts)}, *others]


def _joined_text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if "text" in part)
