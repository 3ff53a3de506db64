"""Shortcuts on the way of a chat: the same text, or the same refusal, as the long way gives."""

from __future__ import annotations

import copy
import functools
import json
from collections import UserDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import jinja2
import jinja2.ext
import jinja2.sandbox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmroute import Normalizer
from mmroute.chat.template import FILTER, NotReproducibleError, _Environment, guarded
from mmroute.engines.vllm.message_schema import _is_plain
from mmroute.engines.vllm.messages import parse_chat, to_conversation
from mmroute.errors import InexactError
from mmroute.requests.items import Modality
from mmroute.requests.request import Request

SETTINGS: Final[dict[str, Any]] = {
    "trim_blocks": True,
    "lstrip_blocks": True,
    "extensions": [jinja2.ext.loopcontrols],
}


class Tricky(dict[str, Any]):
    """A dict that is not quite one."""

    items_read = "attribute"


class Loud:
    """What has an attribute that raises, and one that nobody may read."""

    _private = "private"
    public = "public"

    @property
    def broken(self) -> str:
        raise KeyError("broken")


CONTEXT: Final[dict[str, Any]] = {
    "m": {
        "role": "user",
        "content": [{"type": "text", "text": "hi"}, {"type": "image"}],
        "none": None,
        "empty": "",
        "zero": 0,
        "false": False,
        "number": 1.5,
        "nested": {"deep": {"deeper": "found"}, "items": "an items key"},
        "items": "an items key",
        "keys": ["k"],
        "get": None,
        "update": "u",
        "pop": "p",
        "clear": "c",
        "_private": "underscore",
        "__class__": "a class key",
        "__init__": "an init key",
        "format": "{0.__class__}",
        "tuple": (1, 2),
        5: "a number for a key",
    },
    "proxy": MappingProxyType({"role": "user", "items": "hidden"}),
    "tricky": Tricky(role="user", items_read="key", copy="key"),
    "loud": Loud(),
    "many": [{"role": "user"}, {"role": "assistant", "content": None}, {}],
    "text": "a {} b {0.__class__}",
}
NAMES: Final = (
    "role", "content", "none", "empty", "zero", "false", "number", "nested", "items", "keys",
    "get", "update", "pop", "clear", "copy", "setdefault", "popitem", "values", "_private",
    "__class__", "__init__", "__dict__", "__len__", "__getitem__", "__doc__", "mro", "missing",
    "_missing", "__missing__", "format", "tuple", "items_read", "public", "broken", "upper",
)  # fmt: skip
USES: Final = (
    "{{ %s }}", "{{ %s is defined }}", "{{ %s is none }}", "{{ %s is string }}", "{{ %s.deep }}",
    "{{ %s or 'else' }}", "{{ %s() }}", "{{ %s('role') }}", "{{ %s | length }}",
    "{%% for x in %s %%}[{{ x }}]{%% endfor %%}", "{{ %s.format(m) }}", "{{ %s is callable }}",
    "{{ %s['deep'] }}", "{{ %s == 'user' }}", "{{ %s.__class__.__mro__ }}", "{{ %s | tojson }}",
)  # fmt: skip
OTHER: Final = (
    (
        "{% set ns = namespace(a=1, b=none, c='', d=[1], e={'f': 2}, format='{}') %}"
        "{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.d }}{{ ns.e.f }}{{ ns.missing }}"
        "{{ ns.format.format(1) }}"
    ),
    "{% set ns = namespace({'a': 1, 'items': 2}) %}{{ ns.a }}{{ ns.items }}{{ ns['a'] }}",
    "{% set ns = namespace({'a': 1}, a=2) %}{{ ns.a }}",
    "{% set ns = namespace(**m.nested) %}{{ ns.deep.deeper }}{{ ns.items }}",
    "{% set ns = namespace(*[{'a': 1}]) %}{{ ns.a }}",
    (
        "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{% set ns.b = m.role %}"
        "{{ ns.a }}{{ ns.b }}"
    ),
    (
        "{% set ns = namespace(found=false) %}{% for x in many %}{% if x.content is defined %}"
        "{% set ns.found = true %}{% set ns.last = x.role %}{% endif %}{% endfor %}"
        "{{ ns.found }}{{ ns.last }}"
    ),
    "{% set ns = namespace(_a=1, __b=2) %}{{ ns._a is defined }}{{ ns._a }}",
    "{% set ns = namespace(a=1) %}{{ ns.__class__ }}",
    "{% set ns = namespace(a=1) %}{{ ns._Namespace__attrs }}",
    "{% set ns = namespace(a=1) %}{{ ns.__init__ }}",
    "{% set ns = namespace(a=1) %}{{ ns }}",
    "{% for x in many %}{% set ns = namespace(a=x) %}{{ ns }}{% endfor %}",
    (
        "{% for x in many %}{% set ns = namespace() %}{{ ns._loop_vars is defined }}{{ ns }}"
        "{% endfor %}"
    ),
    "{% block b %}{% set ns = namespace(a=1) %}{{ ns }}{% endblock %}",
    (
        "{% macro f(x) %}{% set ns = namespace(a=x) %}{{ ns }}{{ caller() }}{% endmacro %}"
        "{% call f(1) %}{{ namespace(b=2) }}{% endcall %}"
    ),
    "{% set n = namespace %}{{ n(a=1).a }}{{ n }}",
    "{{ namespace(1) }}",
    "{{ namespace(1, 2) }}",
    "{{ namespace('ab') }}",
    "{{ namespace.__init__ }}",
    "{{ namespace(a=1).missing.more }}",
    "{{ namespace(a=m.update).a() }}",
    "{{ namespace(f=loud).f._private }}{{ namespace(f=loud).f.public }}",
    "{% set namespace = m %}{{ namespace.role }}",
    "{{ dict(a=1).a }}{{ dict(items=1)['items'] }}{{ dict(m).role }}",
    "{{ dict(a=1).update({'b': 2}) }}",
    "{{ m.content.append(1) }}",
    "{{ m.nested.pop('deep') }}",
    "{{ m.clear() }}",
    (
        "{% for x in many %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}"
        "{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem.role }}"
        "{{ loop.nextitem.role }}{{ loop.nextitem }}{{ loop.previtem is defined }}"
        "{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{{ loop.missing }}{% endfor %}"
    ),
    (
        "{% for x in [none, '', 0] %}{{ loop.previtem }}{{ loop.nextitem }}"
        "{{ loop.nextitem is none }}{{ loop.nextitem is defined }}{% endfor %}"
    ),
    "{% for x in many | map(attribute='role') %}{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% for x in many %}{{ loop.__class__ }}{% endfor %}",
    "{% for x in many %}{{ loop._iterable }}{% endfor %}",
    "{% for x in many %}{{ loop._to_iterator }}{% endfor %}",
    "{% for x in many %}{{ loop.missing.more }}{% endfor %}",
    "{% for x in many %}{{ loop }}{% break %}{% endfor %}",
    (
        "{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}{{ loop(x) }}"
        "{% else %}{{ x }}{{ loop.depth }}{% endif %}{% endfor %}"
    ),
    (
        "{% for x in many %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}"
        "{{ loop.index }}{% endfor %}{% endfor %}"
    ),
    "{{ text.format(m) }}",
    "{{ 'a{}'.format_map({'a': 1}) }}",
    "{{ ('{0.' + '__class__}').format(1) }}",
    "{{ m.format.format(m) }}",
    "{{ text.upper() }}{{ m.role.upper() }}{{ m.role.missing }}",
    "{{ m[5] }}{{ m['role'] }}{{ m['__class__'] }}{{ m['missing'] }}{{ m.get('role') }}",
    "{{ many | map(attribute='role') | join(',') }}{{ many | selectattr('content') | list }}",
    "{{ many[0].role }}{{ many[2].role }}{{ many.role }}{{ many.__class__ }}",
    "{{ m.items() }}{{ missing }}{{ missing.more }}",
    "{{ range(3).start }}{{ cycler('a', 'b').next() }}{{ joiner(',')() }}",
)


OURS: Final = _Environment(**SETTINGS)
OURS.filters[FILTER] = guarded
ADDRESS: Final = " at 0x"
THEIRS: Final = jinja2.sandbox.ImmutableSandboxedEnvironment(**SETTINGS)
OWNERS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "m": lambda context: context["m"],
    "m.nested": lambda context: context["m"]["nested"],
    "proxy": lambda context: context["proxy"],
    "tricky": lambda context: context["tricky"],
    "loud": lambda context: context["loud"],
    "many[2]": lambda context: context["many"][2],
}


@functools.cache
def compiled(environment: jinja2.Environment, source: str) -> jinja2.Template:
    return environment.from_string(source)


def outcome(
    environment: jinja2.Environment, source: str, owner: str = "m", context: Any = None
) -> str:
    """The text, or the type of what was raised."""
    context = context or copy_of_context()
    try:
        template = compiled(environment, source)
        return "text " + template.render(context, owner=OWNERS[owner](context))
    except NotReproducibleError:
        return ADDRESS
    except Exception as error:  # noqa: BLE001 - whatever it is, it must be the same
        return "raises " + type(error).__name__


def copy_of_context() -> dict[str, Any]:
    return {**CONTEXT, "m": copy.deepcopy(CONTEXT["m"]), "many": copy.deepcopy(CONTEXT["many"])}


def check_same(source: str, owner: str = "m", contexts: Any = (None, None)) -> None:
    ours, theirs = (
        outcome(environment, source, owner, context)
        for environment, context in zip((OURS, THEIRS), contexts, strict=True)
    )
    if ours == ADDRESS:  # refused where, and only where, the other one writes it
        assert ADDRESS in theirs
    else:
        assert ours.partition(ADDRESS)[0] == theirs.partition(ADDRESS)[0]


@pytest.mark.parametrize("owner", OWNERS)
def test_what_is_read_of_messages(owner: str) -> None:
    for name in NAMES:
        contexts = copy_of_context(), copy_of_context()  # what one changes the other should too
        for use in USES:
            check_same(use % f"owner.{name}", owner, contexts)


@pytest.mark.parametrize("source", OTHER)
def test_what_else_templates_do(source: str) -> None:
    check_same(source)


def test_the_templates_here_render_and_are_refused() -> None:
    """All of one kind would prove little."""
    outcomes = {source: outcome(THEIRS, source) for source in OTHER}
    assert sum(found.startswith("text") for found in outcomes.values()) > 20
    kinds = {found for found in outcomes.values() if found.startswith("raises")}
    assert kinds >= {"raises SecurityError", "raises UndefinedError", "raises TypeError"}


names = st.one_of(st.sampled_from(NAMES), st.from_regex(r"[a-z_]{1,6}", fullmatch=True))
values = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.integers()))


@given(st.dictionaries(names, values), names, st.sampled_from(["dict", "namespace"]))
def test_any_key_is_read_as_the_sandbox_reads_it(
    keys: dict[str, Any], name: str, kind: str
) -> None:
    owner = keys if kind == "dict" else jinja2.utils.Namespace(keys)
    found, expected = OURS.getattr(owner, name), THEIRS.getattr(owner, name)
    assert type(found) is type(expected)
    if not isinstance(expected, jinja2.Undefined):
        assert found == expected


# Messages that are only a role and a text

roles = st.one_of(
    st.sampled_from(["system", "user", "assistant", "tool", "developer", "function", "bot"]),
    st.text(max_size=5),
)
contents = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "x-anthropic-billing-header: a\nb", "x-anthropic-billing-header: a", "<image>", "\n"]
    ),
)
plain_messages = st.lists(
    st.fixed_dictionaries({"role": roles, "content": contents}), min_size=1, max_size=4
)
WRAPPERS: Final[dict[str, Callable[[Any], Any]]] = {
    "mapping proxy": MappingProxyType,
    "user dict": UserDict,
    "subclass": Tricky,
}


def conversation(messages: object, content_format: str) -> Any:
    """What the template gets, or what is said instead."""
    try:
        chat = parse_chat(Request(messages=messages))  # type: ignore[arg-type]  # of any kind
        placeholders = {Modality.IMAGE: "<image>"}
        texts = to_conversation(chat, content_format=content_format, placeholders=placeholders)
    except InexactError as inexact:
        return inexact.reason, str(inexact)
    return [list(message.items()) for message in texts], chat.messages, chat.contents


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("content_format", ["string", "openai"])
def test_plain_messages_are_what_the_long_way_makes_of_them(
    wrapper: str, content_format: str
) -> None:
    @given(plain_messages)
    def same(messages: list[dict[str, Any]]) -> None:
        wrapped = [WRAPPERS[wrapper](message) for message in messages]
        assert all(map(_is_plain, messages))
        assert not any(map(_is_plain, wrapped))
        assert conversation(messages, content_format) == conversation(wrapped, content_format)

    same()


parts = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": contents}),
    st.just({"type": "image"}),
    st.just({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}),
    st.just({"type": "text", "text": None}),
    st.just({"type": "image", "uuid": "a"}),
    st.just({"type": "text", "image": "b"}),
)


@pytest.mark.parametrize("content_format", ["string", "openai"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_plain_parts_are_what_the_long_way_makes_of_them(wrapper: str, content_format: str) -> None:
    @given(st.sampled_from(["system", "user", "assistant"]), st.lists(parts, max_size=4))
    def same(role: str, content: list[Mapping[str, Any]]) -> None:
        wrapped = [WRAPPERS[wrapper](part) for part in content]
        found, expected = (
            conversation([{"role": role, "content": each}], content_format)
            for each in (content, wrapped)
        )
        # The messages themselves hold the parts as they came.
        assert found[0] == expected[0]
        assert found[2:] == expected[2:]

    same()


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "a", "name": 5},
        {"role": "user", "content": None},
        {"role": "user"},
        {"role": 5, "content": "a"},
        {"role": "user", "content": 5},
        {"content": "a"},
        {"role": "user", "contents": "a"},
    ],
)
def test_what_is_not_plain_is_looked_at(message: dict[str, Any]) -> None:
    assert not _is_plain(message)


@pytest.mark.parametrize(
    ("role", "more"),
    [("user", {}), ("system", {}), ("assistant", {}), ("bot", {}), ("developer", {"tools": None})],
)
def test_what_a_role_adds_is_added_to_plain_messages(role: str, more: dict[str, Any]) -> None:
    message = {"role": role, "content": "a"}
    chat = parse_chat(Request(messages=[message]))
    texts = to_conversation(chat, content_format="string", placeholders={})
    assert texts == [message | more]


def test_tools_of_a_developer_have_the_fields_of_the_schema_first() -> None:
    tool = {"more": 1, "type": "function", "function": {"x": 2, "strict": True, "name": "f"}}
    message = {"role": "developer", "content": "a", "tools": [tool]}
    (checked,) = parse_chat(Request(messages=[message])).messages
    right = {"function": {"name": "f", "strict": True, "x": 2}, "type": "function", "more": 1}
    assert json.dumps(checked["tools"]) == json.dumps([right])


def test_messages_are_left_as_they_were(normalizer: Callable[[str], Normalizer]) -> None:
    messages = [
        {"role": "system", "content": "x-anthropic-billing-header: a\nb"},
        {"role": "user", "content": "what is this"},
        {"role": "assistant", "content": "the image"},
    ]
    before = copy.deepcopy(messages)
    routing = normalizer("small-qwen2.5-vl").normalize(
        messages=messages, add_generation_prompt=False, continue_final_message=True
    )
    assert routing.exact
    assert messages == before
