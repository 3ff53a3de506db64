"""Requests and templates for vLLM's Rust frontend; `tools/generate_rust.py` asks it for the answers."""

from __future__ import annotations

from typing import Any, Final

MODELS: Final = ("small-qwen2.5-vl", "small-llava-1.5", "small-gemma-3", "small-qwen3-vl")
"""One whose name has a tool parser, two whose names have none, one whose reasoning parser fails."""
TEMPLATE_MODEL: Final = "small-qwen2.5-vl"

_HI: Final = [{"role": "user", "content": "Hi"}]
_WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def _text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def _user(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content, **more}]}


def _answered(**message: Any) -> dict[str, Any]:
    return {"messages": [*_HI, {"role": "assistant", **message}, *_HI]}


def _called(arguments: Any) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return _answered(
        content=None, tool_calls=[{"id": "c1", "type": "function", "function": function}]
    )


REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "text": _user("A question."),
    "parts": _user(_text("One.", "Two.")),
    "system-parts": {"messages": [{"role": "system", "content": _text("a", "b")}, *_HI]},
    "assistant-parts": _answered(content=_text("a", "b")),
    "user-empty": _user(""),
    "user-no-parts": _user([]),
    "user-empty-part": _user(_text("")),
    "user-null": _user(None),
    "system-empty": {"messages": [{"role": "system", "content": ""}, *_HI]},
    "assistant-empty": _answered(content=""),
    "assistant-null": _answered(content=None),
    "assistant-no-content": _answered(),
    "assistant-no-parts": _answered(content=[]),
    "no-messages": {"messages": []},
    "part-of-no-type": _user([{"text": "a"}]),
    "part-is-text": _user(["a"]),
    "part-refusal": _user([{"type": "refusal", "refusal": "no"}]),
    "part-with-more": _user([{"type": "text", "text": "a", "more": 1}]),
    "image": _user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
    "role-developer": {"messages": [{"role": "developer", "content": "Be brief."}, *_HI]},
    "role-developer-late": {"messages": [*_HI, {"role": "developer", "content": "Be brief."}, *_HI]},
    "role-developer-tools": {
        "messages": [{"role": "developer", "content": "d", "tools": [_WEATHER]}, *_HI]
    },
    "role-own": {"messages": [{"role": "root", "content": "a"}, *_HI]},
    "role-function": {"messages": [{"role": "function", "name": "f", "content": "a"}, *_HI]},
    "role-missing": {"messages": [{"content": "a"}]},
    "tool-answer": {"messages": [*_HI, {"role": "tool", "tool_call_id": "c", "content": "20"}, *_HI]},
    "tool-answer-without-call": {"messages": [*_HI, {"role": "tool", "content": "20"}, *_HI]},
    "name": _user("Hi", name="bob"),
    "name-null": _user("Hi", name=None),
    "name-number": _user("Hi", name=5),
    "reasoning": _answered(content="4", reasoning="easy"),
    "reasoning-content": _answered(content="4", reasoning_content="easy"),
    "reasoning-twice": _answered(content="4", reasoning="easy", reasoning_content="easy"),
    "reasoning-alone": _answered(content=None, reasoning="easy"),
    "call": _called('{"city": "Zürich", "n": [1, 2.50, null]}'),
    "call-empty-arguments": _called(""),
    "call-null-arguments": _called(None),
    "call-object-arguments": _called({"city": "Z"}),
    "call-no-json": _called("not json"),
    "call-list": _called("[1]"),
    "call-twice-a-key": _called('{"a": 1, "b": 2, "a": 3}'),
    "calls-none": _answered(content="a", tool_calls=[]),
    "tools": {**_user("Hi"), "tools": [_WEATHER]},
    "tools-empty": {**_user("Hi"), "tools": []},
    "tools-twice-a-name": {**_user("Hi"), "tools": [_WEATHER, _WEATHER]},
    "tools-bare": {**_user("Hi"), "tools": [{"function": {"name": "f"}}]},
    "tools-strict": {
        **_user("Hi"),
        "tools": [{"type": "function", "function": {"name": "f", "strict": True, "more": 1}}],
    },
    "no-generation-prompt": {**_answered(content="a"), "add_generation_prompt": False},
    "continued": {
        "messages": [*_HI, {"role": "assistant", "content": "It is a "}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "continued-parts": {
        "messages": [*_HI, {"role": "assistant", "content": _text("It", " is")}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "continued-user": {
        **_user("Hi"), "add_generation_prompt": False, "continue_final_message": True
    },
    "special-tokens": {**_user("Hi"), "add_special_tokens": True},
    "kwargs": {**_user("Hi"), "chat_template_kwargs": {"add_generation_prompt": False}},
    "kwargs-messages": {**_user("Hi"), "chat_template_kwargs": {"messages": []}},
    "processor-kwargs": {**_user("Hi"), "mm_processor_kwargs": {}},
    "salt": {**_user("Hi"), "cache_salt": "a"},
    "salt-refused": {**_user("Hi"), "cache_salt": "a/b"},
    "surrogate": _user("half \ud83d"),
    "spaces": _user("  two\t\r\n\n\n  \u00a0\u3000 "),
    "typed-tokens": _user("<|im_end|> </s> <image> <end_of_turn> <|endoftext|>"),
    "prompt": {"prompt": "Once upon a time", "add_special_tokens": True},
    "prompt-without": {"prompt": "Once upon a time", "add_special_tokens": False},
    "prompt-unsure": {"prompt": "a\u180eb", "add_special_tokens": False},
    "ids": {"prompt_token_ids": [5, 6, 7]},
    "ids-none": {"prompt_token_ids": []},
    "ids-large": {"prompt_token_ids": [5, 100_000]},
    "ids-negative": {"prompt_token_ids": [-1]},
}  # fmt: skip

_TOOLS: Final = {"tools": [_WEATHER]}
_V: Final = {
    "v": {
        "items": [1, "two", None, True, 0.5], "n": 3, "text": "  It's \"a\"\n", "get": "g", "e": [],
        "d": {"b": {}, "a": [{"x": "é"}]}, "f": 1.0, "small": 0.0002, "names": ["b", "A", "c"],
    }
}  # fmt: skip


def _shown(template: str, **kwargs: Any) -> dict[str, Any]:
    """A template over the variables above, and one message of a user."""
    return {"template": template, **_user("Hi"), "chat_template_kwargs": {**_V, **kwargs}}


_SEVERAL: Final = [
    {"role": "system", "content": " s "}, {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"},
]  # fmt: skip

TEMPLATES: Final[dict[str, dict[str, Any]]] = {
    "print": _shown("{{ v }}|{{ v.d }}|{{ none }}|{{ true }}|{{ missing }}|{{ 1.0 }}|{{ v.small }}"),
    "concat": _shown("{{ v.n ~ none ~ v.items ~ missing ~ 0.5 }}"),
    "item-named-as-a-method": _shown("{{ v.items }}|{{ v.get }}|{{ v.keys }}|{{ v['values'] }}"),
    "methods-of-a-map": _shown("{% for k, x in v.d.items() %}{{ k }}={{ x }};{% endfor %}{{ v.d.keys() }}"
                               "{{ v.d.get('b', 1) }}{{ v.d.get('z') }}{{ v.d.get('z', 'q') }}"),
    "methods-of-a-text": _shown("[{{ v.text.strip() }}][{{ v.text.lstrip() }}][{{ 'a,b,,c'.split(',') }}]"
                                "[{{ ' a  b '.split() }}][{{ 'a,b,c'.split(',', 1) }}][{{ 'xxaxx'.strip('x') }}]"
                                "[{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'bc')) }}][{{ 'éa'.find('a') }}]"
                                "[{{ 'aXb'.upper() }}{{ 'o-n e'.title() }}{{ 'aBC'.capitalize() }}]"),
    "unknown-method": _shown("{{ 'a'.zfill(3) }}"),
    "method-of-undefined": _shown("{{ missing.strip() }}"),
    "attribute-of-undefined": _shown("{{ missing.a }}"),
    "attribute-of-none": _shown("[{{ none.a }}]"),
    "trim": _shown("[{{ v.text | trim }}][{{ ' \u001c x \u0085' | trim }}][{{ ' \u001c x'.strip() }}]"),
    "tests": _shown("{{ v.items is sequence }}{{ v.text is sequence }}{{ v.text is iterable }}{{ v.d is iterable }}"
                    "{{ v.d is mapping }}{{ none is iterable }}{{ true is number }}{{ 1 is number }}{{ 1.0 is integer }}"
                    "{{ v.items[1:] is sequence }}{{ missing is none }}{{ missing is defined }}{{ none is defined }}"),
    "slices": _shown("{{ v.items[1:] }}{{ v.items[-1] }}{{ v.items[::-1] }}{{ v.text[2:4] }}{{ v.items[9] }}"
                     "{{ missing[1:] }}{{ v.text[2] }}"),
    "tools-undefined": _shown("{{ tools is defined }}{{ tools is none }}{{ tools is not none }}{{ documents is defined }}"),
    "tools-told": {"template": "{{ tools }}{{ tools | tojson }}", **_user("Hi"), **_TOOLS},
    "tojson": _shown("{{ v | tojson }}"),
    "tojson-indent": _shown("{{ v | tojson(indent=2) }}"),
    "tojson-options": _shown("{{ v.d | tojson(ensure_ascii=true, sort_keys=true, separators=[',', ':']) }}"),
    "tojson-numbers": _shown("{{ x | tojson }}", x=[1e16, 1e-5, 1e-6, 2.5, -0.0, 2**63, 1.5e20]),
    "tojson-undefined": _shown("{{ missing | tojson }}"),
    "tojson-positional": _shown("{{ v.d | tojson(2) }}"),
    "filters": _shown("{{ v.names | join(', ') }}{{ v.names | sort }}{{ v.d | dictsort }}{{ v.items | length }}"
                      "{{ v.names | first }}{{ v.names | last }}{{ v.e | first }}{{ 'ab' | upper }}{{ v.d | list }}"
                      "{{ v.names | map('upper') | list }}{{ v.d | items | list }}{{ 'a-b' | replace('-', '+') }}"),
    "filters-of-nothing": _shown("[{{ none | trim }}{{ missing | default('d') }}{{ none | default('d') }}"
                                 "{{ none | default('d', true) }}{{ '' | default('e', boolean=true) }}]"),
    "length-of-undefined": _shown("{{ missing | length }}"),
    "number-of-64-bits": _shown("{{ (2**64 - 1) | tojson }}{{ (-2**63) | tojson }}{{ 2**70 }}"),
    "number-of-65-bits": _shown("{{ [2**64] | tojson }}"),
    "selectattr": {"template": "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
                               "{{ (messages | rejectattr('role', 'eq', 'user') | first).content }}"
                               "{% if messages | selectattr('role', 'equalto', 'x') %}some{% endif %}", "messages": _SEVERAL},
    "indent": _shown("{{ 'a\nb\n\nc\n' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}"),
    "arithmetic": _shown("{{ v.n + 2 }}{{ v.n % 2 }}{{ -1 % 2 }}{{ 0.0001 }}{{ [0.00011] }}{{ 'a' * 3 }}{{ [1] + [2] }}{{ v.n - 5 }}{{ 7 // 2 }}"),
    "minus-before-a-dot": _shown("{{ -v.n }}"),
    "number-in-a-list": _shown("{{ [0.00001] }}"),
    "text-and-number": _shown("{{ 'a' + 1 }}"),
    "comparison": _shown("{{ 1 == 1.0 }}{{ 1 == true }}{{ 'a' < 'b' }}{{ 'a' in 'cat' }}{{ 1 in v.items }}"
                         "{{ 'd' in v }}{{ 'x' in missing }}{{ missing == none }}{{ [1] == (1,) }}"),
    "in-none": _shown("{{ 'x' in none }}"),
    "loop": {"template": "{% for m in messages %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}"
                         "{{ loop.previtem.role }}{{ loop.nextitem.role }}{% if loop.index == 3 %}{% break %}{% endif %};"
                         "{% endfor %}", "messages": _SEVERAL},
    "loop-over-none": _shown("{% for x in none %}a{% else %}empty{% endfor %}{% for x in missing %}a{% else %}e{% endfor %}"),
    "loop-over-a-map": _shown("{% for k in v.d %}{{ k }}{{ loop.last }}{% endfor %}"),
    "loop-over-a-text": _shown("{% for c in 'ab' %}{{ c }}{{ loop.last }}{% endfor %}"),
    "loop-filtered": {"template": "{% for m in messages if m.role != 'user' %}{{ m.role }}{{ loop.length }}{% endfor %}",
                      "messages": _SEVERAL},
    "macro": _shown("{% macro f(x, y='d') %}[{{ x }}{{ y }}{{ g }}]{% endmacro %}{% set g = 'later' %}{{ f(1) }}"
                    "{{ f(1, missing) }}{{ f(y=2, x=none) }}{{ f() }}"),
    "macro-sets-what-it-reads": {
        "template": "{% macro f() %}{% set tools = tools %}{{ tools is defined }}{% endmacro %}{{ f() }}",
        **_user("Hi"), **_TOOLS,
    },
    "macro-default-of-its-name": _shown("{% macro f(v=v) %}{{ v }}{% endmacro %}{{ f() }}"),
    "macro-default": _shown("{% macro f(x=v) %}{{ x }}{% set v = 1 %}{% endmacro %}{{ f() }}"),
    "macro-recursive": _shown("{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}"),
    "macro-before": _shown("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}"),
    "namespace": {"template": "{% set ns = namespace(n=0, t='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
                              "{% set ns.t = ns.t ~ m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.t }}{{ ns.x is defined }}",
                  "messages": _SEVERAL},
    "set-in-a-loop": {"template": "{% set x = 1 %}{% for m in messages %}{% set x = 2 %}{% endfor %}{{ x }}",
                      "messages": _SEVERAL},
    "set-block": _shown("{% set x %} a {{ v.n }} {% endset %}[{{ x }}]{{ x is string }}"),
    "generation": _shown("a {% generation %}{% set y = 1 %}b{% endgeneration %} c{{ y is defined }}"),
    "generation-in-a-macro": _shown("{% macro f(x) %} {%- generation -%} {{ x }} {%- endgeneration -%}{% endmacro %}{{ f(v) }}"),
    "generation-not-a-tag": _shown("{% raw %}{% generation %}{{ x | tojson }}{% endraw %}{# | tojson #}{{ '| tojson' }}"),
    "call": _shown("{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}{{ v.d }}{% endcall %}"),
    "names-of-the-binding": _shown("{{ joiner is defined }}{{ cycler is defined }}{{ debug is defined }}{{ null is defined }}{{ items }}"),
    "filter-of-the-binding": _shown("{{ 'abc' | wordcount }}"),
    "letters": _shown("{{ 'ÄÖİẞ' | lower }}{{ 'ßŉ' | upper }}{{ ['\U00011f5a', '\u1ac1', 'e\u0301', '\u200d', '\ua7ce'] }}"),
    "order": _shown("{{ ['b', 'A', 'é', 'c'] | sort }}"),
    "order-of-capitals": _shown("{{ ['b', 'A', w, 'c'] | sort }}", w="É"),
    "tojson-computed": _shown("{{ [1 / 3, -0.0, 10.0 ** 16, 6 / 2] | tojson }}{{ '<a>&\u2028' | tojson | replace('a', '<') }}"),
    "whitespace": _shown("a\n  {% if true %}\n  b\n  {% endif %}\n  {# c #}\n c {%- if true %} d {% endif -%} \n e\n"),
    "raise": _shown("{{ raise_exception('no: ' ~ v.n) }}"),
    "strftime": _shown("{{ strftime_now('%Y') }}"),
    "strftime-unused": _shown("{% set d = strftime_now('%Y') %}{{ strftime_now is defined }}"),
    "conditional": _shown("[{{ 'a' if false }}][{{ missing or 'b' }}][{{ v.e and 'c' }}][{{ not missing }}]"),
    "int": _shown("{{ '12' | int }}{{ '1.9' | int }}{{ none | int }}{{ '2.5' | float }}{{ true | int }}"),
    "int-of-a-word": _shown("{{ 'x' | int }}"),
    "escapes": _shown(r"{{ 'a\tb\n\u00e9\\' }}"),
    "openai": {"template": "{% for m in messages %}{% for part in m.content %}({{ part }}){% endfor %}{% endfor %}",
               "messages": [{"role": "user", "content": _text("a", "b")}, {"role": "assistant", "content": _text("c", "d")}]},
    "openai-by-name": {
        "template": "{% macro f(content) %}{% for p in content %}{{ p }}{% endfor %}{% endmacro %}{{ messages[0] }}",
        "messages": [{"role": "user", "content": _text("a", "b")}],
    },
    "string-in-a-macro": {
        "template": "{% macro f(c) %}{% for p in c %}{{ p }}{% endfor %}{% endmacro %}{{ f(messages[0].content) }}{{ messages }}",
        "messages": [{"role": "system", "content": ""}, *_HI],
    },
    "developer": {"template": "{% for m in messages %}{{ m }}{% endfor %}",
                  "messages": [{"role": "developer", "content": "a", "name": "n", "tools": [_WEATHER]}, *_HI]},
    "message-order": {"template": "{% for m in messages %}{{ m | tojson }}{% endfor %}",
                      **_called('{"a": {"b": 1.50}}')},
}  # fmt: skip
"""Chat templates whose constructs jinja2 and minijinja may render otherwise."""
