"""Chats that go on have the prompts of whole ones, whatever went before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from mmroute import FastPaths, ImageSize, Normalizer
from mmroute.chat import cache
from mmroute.chat.cache import ChatCache
from mmroute.chat.conversation import Continued
from mmroute.chat.resumable import ResumableTemplate, proved
from mmroute.engines.vllm.hf_chat import HfChat
from mmroute.engines.vllm.templates import compile_template
from mmroute.errors import InexactError, Reason
from mmroute.requests.items import Modality
from mmroute.requests.request import Request

COUNTED: Final = """\
{%- set n = namespace(image=0) %}{% for m in messages %}
{%- if loop.first and m.role != 'system' %}<system>default{% endif %}<{{ m.role }}>
{%- for part in m.content %}
{%- if part.type == 'image' %}{% set n.image = n.image + 1 %}Picture {{ n.image }}:<image>
{%- elif verbose %}{{ part | tojson }}{% else %}{{ part.text }}{% endif %}
{%- endfor %}
{%- if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}</{{ m.role }}>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""
AHEAD: Final = """\
{%- if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}
{%- if messages[0].role == 'system' %}<system>{{ messages[0].content }}</system>{% endif %}
{%- for m in messages %}
{%- if loop.first or messages[loop.index0 - 1].role != m.role %}<{{ m.role }} {{ loop.index }}>
{%- endif %}{{ m.content }}{{ m.name }}
{%- if loop.last or (messages[loop.index0 + 1].role != m.role) %}</{{ m.role }}>{% endif %}
{%- endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
ALIAS: Final = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] %}
{%- set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}
{%- for m in rest %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate') }}{% endif %}<{{ m['role'] }}>
{%- if loop.index0 == 0 %}{{ first }}{% endif %}{{ m['content'] | trim }}</{{ m['role'] }}>
{%- endfor %}{% if messages[-1].role == 'user' and add_generation_prompt %}<model>{% endif %}"""
TEMPLATES: Final = {"counted": COUNTED, "ahead": AHEAD, "alias": ALIAS}
TOOL: Final = {"type": "function", "function": {"name": "look", "parameters": {"a": 1}}}
MESSAGES: Final[Sequence[Mapping[str, Any]]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is there?"},
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "And there?"}]},
    {"role": "user", "content": [{"type": "text", "text": "Or there?"}, {"type": "image"}]},
    {"role": "user", "content": [{"type": "text", "text": "a", "x": 1, "y": 2}]},
    {"role": "user", "content": [{"type": "text", "text": "a", "x": True, "y": 2}]},
    {"role": "user", "content": [{"type": "text", "text": "a", "y": 2, "x": 1}]},
    {"role": "user", "content": [{"type": "text", "text": "a", "x": 1.0, "y": 2}]},
    {"role": "user", "content": "same", "name": "Ann"},
    {"role": "assistant", "content": "A cat."},
    {"role": "assistant", "content": "Another cat."},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}]},
    {"role": "tool", "content": "seen", "tool_call_id": "1"},
    {"role": "developer", "content": "Be exact."},
]  # fmt: skip
MOST: Final = cache._MOST
ALTERNATING: Final = (MESSAGES[1], MESSAGES[9])
PICTURES: Final = MESSAGES[2:4]
ALIKE: Final = MESSAGES[4:8]


@pytest.fixture(autouse=True)
def everything_is_kept() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_MIN_MESSAGES", 1)
        patch.setattr(cache, "_MOST", 0)
        yield


def chat_of(source: str) -> HfChat:
    template = compile_template(source, "chat_template.jinja")
    return HfChat(template, template, {"bos_token": "<s>"}, {Modality.IMAGE: "<image>"})


def prompt(chat: HfChat, request: Request, kept: ChatCache | None = None) -> str | Reason:
    """The text of a prompt. Its tokens are characters, and it can be cut behind every `>`."""
    try:
        rendered = chat.render(chat.read(request, kept), {}, request)
    except InexactError as error:
        return error.reason
    if isinstance(rendered, str):
        return rendered
    assert isinstance(rendered, Continued)
    ids = np.array([ord(character) for character in rendered.text], np.uint32)
    ends = [(at + 1, at + 1) for at, character in enumerate(rendered.text) if character == ">"]
    return "".join(map(chr, rendered.prompt(ids, ends).tolist()))


def requests(chooser: random.Random, count: int) -> Iterator[Request]:
    """Chats that go on, are cut, mended and asked with other options."""
    known: list[list[Mapping[str, Any]]] = [[]]
    for _ in range(count):
        messages = chooser.choice(known)
        messages = messages[: chooser.randint(len(messages) // 2, len(messages))]
        pool = chooser.choice([MESSAGES, ALTERNATING, ALTERNATING, PICTURES, ALIKE])
        for _ in range(chooser.randint(1, 3)):
            alternate = pool is ALTERNATING
            message = pool[len(messages) % 2] if alternate else chooser.choice(pool)
            messages = [*messages, deepcopy(message)]
        known.append(messages)
        options: dict[str, Any] = {}
        if chooser.random() < 0.3:
            options["add_generation_prompt"] = False
            options["continue_final_message"] = chooser.random() < 0.5
        if chooser.random() < 0.3:
            options["tools"] = [TOOL]
        if chooser.random() < 0.3:
            options["chat_template_kwargs"] = {"verbose": chooser.choice([True, 1, False])}
        yield Request(messages=messages, **options)


@pytest.mark.parametrize("name", TEMPLATES)
def test_chats_that_go_on_have_the_prompts_of_whole_ones(name: str) -> None:
    chat, kept = chat_of(TEMPLATES[name]), ChatCache(1 << 20)
    for request in requests(random.Random(1), 500):
        assert prompt(chat, request, kept) == prompt(chat, request), request.messages
    assert kept.stats().hits > 100


def looks_at_nothing_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ResumableTemplate, "first_new", lambda _, known: known)


LOOP: Final = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (LOOP, (1, 0)),
        ("{% for m in messages %}{{ m }}{{ loop.last }}{% endfor %}", (1, 1)),
        ("{% for m in messages %}{{ m }}{{ messages[loop.index0 + 3] }}{% endfor %}", (1, 3)),
        ("{% set a = messages[2:] %}{% for m in a %}{{ messages[1] }}{% endfor %}", (4, 0)),
        (f"{LOOP}{{{{ messages[-1].role }}}}", (1, 0)),
        # What is there depends on messages that come later, or on what was called before.
        (f"{{{{ messages[-1].role }}}}{LOOP}", None),
        (f"{{{{ messages | length }}}}{LOOP}", None),
        ("{% for m in messages | reverse %}{{ m }}{% endfor %}", None),
        ("{% for m in messages if m.content %}{{ m }}{% endfor %}", None),
        ("{% for m in messages recursive %}{{ m }}{% endfor %}", None),
        ("{% for m in messages %}{{ m }}{% else %}none{% endfor %}", None),
        ("{% for m in messages %}{{ loop.length }}{% endfor %}", None),
        ("{% for m in messages %}{{ loop.previtem }}{% endfor %}", None),
        ("{% for m in messages %}{{ loop.changed(m.role) }}{% endfor %}", None),
        ("{% for m in messages %}{{ loop.cycle(1, 2) }}{% endfor %}", None),
        ("{% for m in messages %}{% set l = loop %}{{ l.length }}{% endfor %}", None),
        ("{% for m in messages %}{{ messages[loop.index0 - 1] }}{% endfor %}", None),
        ("{% for m in messages %}{{ messages[loop.index0 * 2] }}{% endfor %}", None),
        ("{% for m in messages %}{% if loop.first %}{% break %}{% endif %}{% endfor %}", None),
        ("{% set c = cycler(1, 2) %}{% for m in messages %}{{ c.next() }}{% endfor %}", None),
        ("{% set t = tools | map('string') %}{% for m in messages %}{{ t | first }}{% endfor %}",
         None),
        ("{% set t %}a{% endset %}" + LOOP, None),
        ("{% macro a() %}{{ messages }}{% endmacro %}" + LOOP, None),
        (2 * "{% set n = namespace() %}" + "{% for m in messages %}{% set n.a = m %}{% endfor %}",
         None),
        ("{% for m in messages %}{% set n.a = m %}{% endfor %}", None),
        ("{% for m in messages %}{% for m in messages %}{% endfor %}{% endfor %}", None),
        (LOOP + LOOP, None),
        ("no loop", None),
    ],
)  # fmt: skip
def test_which_templates_go_on(source: str, found: tuple[int, int] | None) -> None:
    template = proved(compile_template(source, "chat_template.jinja"))
    assert (None if template is None else (template.fewest, template.ahead)) == found


def test_a_template_that_writes_probe_chats_otherwise_is_rendered_whole(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks_at_nothing_behind(monkeypatch)
    template = compile_template(AHEAD, "chat_template.jinja")
    assert proved(template) is None
    assert "chat_template.jinja is rendered whole: a probe chat went wrong" in caplog.text


def test_what_a_client_changes_later_changes_nothing_that_is_kept() -> None:
    chat, kept = chat_of(COUNTED), ChatCache(1 << 20)
    messages: Any = [deepcopy(message) for message in MESSAGES[1:4]] * 3
    prompt(chat, Request(messages=messages), kept)
    again = deepcopy(messages)
    messages[0]["content"] = "changed"
    messages[2]["content"][0]["x"] = {"changed": 1}
    asked = Request(messages=[*again, MESSAGES[9]])
    assert prompt(chat, asked, kept) == prompt(chat, asked)
    assert kept.stats().hits == 1


def test_what_is_no_json_is_not_kept() -> None:
    chat, kept = chat_of(COUNTED), ChatCache(1 << 20)
    for value in (b"a", bytearray(b"a"), memoryview(b"a")):  # alike to `marshal`
        part = {"type": "text", "text": "a long enough text", "x": value}
        asked = Request(messages=[{"role": "user", "content": [part]}])
        assert prompt(chat, asked, kept) == prompt(chat, asked)
    assert (kept.stats().entries, kept.stats().hits) == (0, 0)


def test_a_chat_is_kept_when_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST", MOST)
    chat, kept = chat_of(COUNTED), ChatCache(1 << 20)
    system = {"role": "system", "content": "as all chats have it " * 3}
    turns = [{"role": "user", "content": f"question {number}"} for number in range(8)]

    def hits(*messages: Mapping[str, Any]) -> int:
        asked = Request(messages=[system, *messages])
        assert prompt(chat, asked, kept) == prompt(chat, asked)
        return kept.stats().hits

    assert [hits(*turns[:count]) for count in range(3, 8)] == [0, 0, 1, 2, 3]
    # Another chat that begins like it.
    others = [{"role": "user", "content": f"other {number}"} for number in range(8)]
    assert [hits(*others[:count]) for count in range(5, 8)] == [3, 3, 4]


def test_memory_is_bounded() -> None:
    chat, kept = chat_of(COUNTED), ChatCache(20_000)
    for request in requests(random.Random(3), 100):
        prompt(chat, request, kept)
        assert kept.stats().kept_bytes <= 20_000
    assert kept.stats().entries > 1


def conversation(turns: int, *, images: bool = True) -> list[dict[str, Any]]:
    parts = [{"type": "image"}, {"type": "text", "text": "this is"}] if images else "this is"
    asked = {"role": "user", "content": parts}
    return [asked, {"role": "assistant", "content": "the picture"}] * turns


def test_requests_of_a_model_that_goes_on(small_model: Callable[[str], Path]) -> None:
    directory = small_model("small-qwen2.5-vl")
    kept = Normalizer.from_pretrained(directory)
    none = Normalizer.from_pretrained(directory, fast_paths=FastPaths(chat_cache_bytes=0))
    for turns in range(1, 6):
        asked: Any = {
            "messages": [*conversation(turns), {"role": "user", "content": "what"}],
            "images": [{"width": 64, "height": 48, "uuid": f"{i}"} for i in range(turns)],
        }
        assert_same(kept, none, asked)
    assert none.stats().chats is None
    stats = kept.stats().chats
    assert stats is not None
    assert stats.hits == 4


def assert_same(kept: Normalizer, none: Normalizer, asked: dict[str, Any]) -> None:
    asked["images"] = [ImageSize(**size) for size in asked["images"]]
    found, right = kept.normalize(**asked), none.normalize(**asked)
    assert right.exact, right.message
    assert found.token_ids.tolist() == right.token_ids.tolist()
    assert found.placeholders == right.placeholders
    assert found.identities == right.identities
