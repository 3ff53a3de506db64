"""What vLLM's schema makes of messages, and whether the quick way makes the same of plain ones.

The outcomes of `CASES` were asked of vLLM 0.33's ``ChatCompletionRequest``, with pydantic 2.14.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmroute.engines.vllm import message_schema
from mmroute.engines.vllm import messages as parsing
from mmroute.engines.vllm.message_schema import LateParts, check_message, schema_skips_parts
from mmroute.engines.vllm.messages import parse_chat, to_conversation
from mmroute.errors import InexactError
from mmroute.requests.request import Request

TEXT = {"type": "text", "text": "t"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:x"}}
OTHER = {"type": "output_text", "text": "t"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CUSTOM = {"id": "c", "type": "custom", "custom": {"name": "f", "input": ""}}
UNSET = {"refusal": None, "audio": None, "function_call": None}
NAMED = {"function_call": {"name": "f", "arguments": "{}"}}

CASES: list[tuple[bool, str, list[Any], dict[str, Any]]] = [
    (True, "assistant", [], {}),
    (False, "assistant", [TEXT], {}),
    (True, "assistant", [OTHER], {}),
    (True, "assistant", ["t"], {}),
    (True, "assistant", [TEXT, 5], {}),
    (False, "assistant", [TEXT], {"refusal": None}),
    (True, "assistant", [TEXT], {"refusal": None, "audio": None}),
    (True, "assistant", [TEXT], UNSET),
    (False, "assistant", [TEXT, TEXT], UNSET),
    (False, "assistant", [TEXT], {**UNSET, "tool_calls": [CALL]}),
    (True, "assistant", [TEXT], {"tool_calls": [CUSTOM]}),
    (False, "assistant", [TEXT], {"tool_calls": None}),
    (True, "assistant", [TEXT], NAMED),
    (True, "assistant", [IMAGE], NAMED),
    (False, "assistant", [IMAGE], {"audio": {"id": "a"}}),
    (False, "assistant", [OTHER], {"reasoning": "r"}),
    (False, "assistant", [], {"refusal": 5}),
    (True, "user", [OTHER], {"name": "b"}),
    (False, "user", [OTHER], {"task": "b"}),
    (False, "user", [OTHER], {"tool_calls": [CALL]}),
    (True, "tool", [OTHER], {"tool_call_id": "c"}),
    (False, "tool", [OTHER], {}),
    (False, "function", [OTHER], {"name": "f"}),
]


@pytest.mark.parametrize(("late", "role", "parts", "more"), CASES)
def test_the_type_that_knows_more_of_a_message_is_taken(
    late: bool, role: str, parts: list[Any], more: dict[str, Any]
) -> None:
    message = {"role": role, "content": parts, **more}
    assert schema_skips_parts(check_message(message, 0)) is late


texts = st.sampled_from(["data:t", ""])
texts_or_not = st.sampled_from(["t", "", None, 5])
details: st.SearchStrategy[Any] = st.sampled_from(["auto", "auto", "x", None, []])
links = st.fixed_dictionaries({"url": texts, "detail": details})
marks = {
    "cache_control": st.just({}),
    "prompt_cache_breakpoint": st.sampled_from([None, {"mode": "explicit"}]),
}
parts = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts_or_not}, optional=marks),
    st.fixed_dictionaries({"type": st.just("image_url"), "image_url": links}, optional=marks),
    st.fixed_dictionaries({"type": st.just("image")}, optional=marks | {"image_url": links}),
)
called = st.fixed_dictionaries({"name": texts, "arguments": texts}, optional={"zz": st.just(1)})
calls = st.fixed_dictionaries(
    {"type": st.just("function"), "function": called, "id": st.sampled_from(["c", "c", "", 5])}
)
fields = dict.fromkeys(
    ("name", "tool_call_id", "reasoning", "reasoning_content", "refusal", "audio"), texts_or_not
)
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "tool", "system", "bot", "function"]),
        "content": st.lists(parts, max_size=2) | texts_or_not,
    },
    optional=fields,
)
calling = st.fixed_dictionaries(
    {"role": st.just("assistant"), "tool_calls": st.lists(calls, max_size=2)},
    optional={"content": st.none() | texts, **fields},
)


def outcome(message: dict[str, Any]) -> object:
    try:
        chat = parse_chat(Request(messages=[message]))
    except InexactError as error:
        return error.reason
    (checked,) = chat.messages
    late = schema_skips_parts(checked), isinstance(checked.get("tool_calls"), LateParts)
    try:
        return str(to_conversation(chat, content_format="openai", placeholders={})), late
    except InexactError as error:
        return error.reason


@settings(max_examples=120)
@given(messages | calling)
def test_what_is_accepted_at_once_is_what_the_types_make_of_it(message: dict[str, Any]) -> None:
    quick = outcome(message)
    with pytest.MonkeyPatch.context() as patch:
        for room, name in (
            (message_schema, "_is_plain"),
            (message_schema, "_has_plain_calls"),
            (parsing, "is_plain_part"),
        ):
            patch.setattr(room, name, lambda _: False)
        assert quick == outcome(message)
