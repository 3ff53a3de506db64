"""Chat templates: which one, in which format, rendered how."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from small_models import Files
from transformers.utils.chat_template_utils import render_jinja_template

from mmroute import ImageSize, Normalizer
from mmroute.engines.vllm.messages import parse_chat
from mmroute.engines.vllm.templates import compile_template
from mmroute.errors import InexactError
from mmroute.model_directory import EMBEDDED_MODEL, find_model
from mmroute.requests.items import Modality
from mmroute.requests.request import Request
from mmroute.tokenizers.formats.mistral import MistralChatEncoder

LOOP = "{% for m in messages %}{{ m.content }}{% endfor %}"
NESTED = "{% for m in MESSAGES %}{% for p in PARTS %}{{ p }}{% endfor %}{% endfor %}"
MACRO = "{% macro show(c) %}{% for p in c %}{{ p }}{% endfor %}{% endmacro %}"


def nested(messages: str, parts: str, before: str = "") -> str:
    return before + NESTED.replace("MESSAGES", messages).replace("PARTS", parts)


def macro(call: str) -> str:
    return MACRO + "{% for m in messages %}{{ " + call + " }}{% endfor %}"


OPENAI = [
    nested("messages", "m['content']"),
    nested("messages", "m.content"),
    nested("messages", "m.content | selectattr('type', 'eq', 'text')"),
    nested("messages", "m.content[1:]"),
    nested("rest", "m.content", before="{% set rest = messages[1:] %}"),
    nested("ns.rest", "m.content", before="{% set ns = namespace(rest=messages) %}"),
    nested("messages", "content", before="{% set content = 1 %}"),
    macro("show(m.content)"),
    macro("show(c=m.content)"),
]
STRING = [
    LOOP,
    "{{ messages }}",
    "{% for m in messages %}{{ m['content'] | trim }}{% endfor %}",
    nested("messages", "m.parts"),
    nested("other", "m.content"),
    nested("messages", "m.content").replace("for p in", "for k, v in"),
    macro("show(m.role)"),
]


@pytest.mark.parametrize("source", OPENAI)
def test_templates_that_loop_over_parts(source: str) -> None:
    assert compile_template(source, "a test").content_format == "openai"


@pytest.mark.parametrize("source", STRING)
def test_templates_that_do_not(source: str) -> None:
    assert compile_template(source, "a test").content_format == "string"


def render(source: str, messages: list[Any], **options: Any) -> str:
    options = {"add_generation_prompt": False, "continue_final_message": False, **options}
    variables = options.pop("variables", {})
    return compile_template(source, "a test").render(messages, variables=variables, **options)


def test_the_environment_is_transformers_own() -> None:
    """Every extension and filter that model templates use, against transformers itself."""
    source = (
        "{%- for m in messages %}\n  {%- if loop.index > 1 %}{% break %}{% endif %}\n"
        "{% generation %}{{ m.content | tojson }}{% endgeneration %}\n{% endfor %}"
        "{{ tools | tojson(indent=2) }} {{ x | default('none') }}\n"
    )
    messages = [{"role": "user", "content": "<ü> & 'q'"}, {"role": "user", "content": "no"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    ((expected,), _) = render_jinja_template([messages], tools=tools, chat_template=source)
    assert render(source, messages, variables={"tools": tools}) == expected


@pytest.mark.parametrize("content", ["It is a", "It is a  ", " lead", "dup dup", "a\n"])
@pytest.mark.parametrize("trim", ["", " | trim"])
def test_continuing_the_final_message(content: str, trim: str) -> None:
    source = "{% for m in messages %}<{{ m.content" + trim + " }}>\n{% endfor %}"
    messages = [{"role": "user", "content": "dup"}, {"role": "assistant", "content": content}]
    ((expected,), _) = render_jinja_template(
        [messages], chat_template=source, continue_final_message=True
    )
    assert render(source, messages, continue_final_message=True) == expected


@pytest.mark.parametrize("found", [[], {}, 5, "picture"])
def test_an_unknown_type_of_a_part_is_named(found: object) -> None:
    part = {"type": found, "uuid": "u"}
    with pytest.raises(InexactError, match=re.escape(f"unknown content part type {found!r};")):
        parse_chat(Request(messages=[{"role": "user", "content": [part, "a"]}]))


def test_string_templates_get_placeholders_in_front(changed_model: Callable[..., Path]) -> None:
    def change(files: Files) -> None:
        files["chat_template.json"] = {"chat_template": LOOP}

    normalizer = Normalizer.from_pretrained(str(changed_model("small-llava-onevision", change)))
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    request = Request(messages=[{"role": "user", "content": parts}])
    rendered = normalizer.model.chat.render(
        parse_chat(request), {Modality.IMAGE: [ImageSize(8, 8)]}, request
    )
    assert rendered == "<image>\na\nb"


def test_what_mistral_common_has_read_is_not_read_or_decoded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = MistralChatEncoder.load(find_model(EMBEDDED_MODEL).path("tekken.json"))
    monkeypatch.delattr(Tekkenizer, "from_file")
    monkeypatch.delattr(Tekkenizer, "decode")
    sized = encoder.with_items({Modality.IMAGE}, lambda _: [10])
    messages = [{"role": "user", "content": "Hi"}]
    assert len(sized.encode(messages, tools=None, continue_final_message=False)) > 3


@pytest.mark.parametrize(
    ("half", "whole"),
    [
        ({"content": "a\ud800b"}, {"content": "a\ufffdb"}),
        ({"content": [{"type": "text", "text": "\udfff"}]}, {"content": "\ufffd"}),
        ({"content": "Hi", "name": "\ud800"}, {"content": "Hi"}),
    ],
)
def test_tekken_replaces_half_of_a_surrogate_pair(
    normalizer: Callable[[str], Normalizer], half: dict[str, Any], whole: dict[str, Any]
) -> None:
    """vLLM's server answers these chats, with the token IDs of U+FFFD."""
    pixtral = normalizer("pixtral-12b-2409")
    user: dict[str, Any] = {"role": "user"}
    found = pixtral.normalize(messages=[user | half])
    expected = pixtral.normalize(messages=[user | whole])
    assert found.token_ids.tolist() == expected.token_ids.tolist()


def test_tekken_replaces_half_of_a_surrogate_pair_in_arguments_and_tools(
    normalizer: Callable[[str], Normalizer],
) -> None:
    def asked(text: str) -> list[int]:
        function = {"name": "f", "description": text, "parameters": {"type": "object"}}
        call = {"id": "abcdefghi", "type": "function",
                "function": {"name": "f", "arguments": f'{{"a": "{text}"}}'}}  # fmt: skip
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "abcdefghi", "content": text},
        ]
        ids: list[int] = (
            normalizer("pixtral-12b-2409")
            .normalize(messages=turns, tools=[{"type": "function", "function": function}])
            .token_ids.tolist()
        )
        return ids

    assert asked("\ud800") == asked("\ufffd") == asked("\udfff")
