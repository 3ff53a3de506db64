"""How the text of a chat template says that thoughts are switched: as SGLang 0.5.23 reads it."""

from __future__ import annotations

import pytest

from mmroute.server.engines.sglang.thinking import ALWAYS, MISTRAL, Switch, switch_of

ENABLE = Switch("enable_thinking")
THINKING = Switch("thinking")


@pytest.mark.parametrize(
    ("template", "switch"),
    [
        ("{{ messages }}", None),
        ("<|channel|>", Switch(rule=ALWAYS)),
        ("{{ '<|im_start|>assistant\\n<think>\\n' }}", Switch(rule=ALWAYS)),
        ("{{ '<|im_start|>assistant\\n<think>\\n' }}{% if enable_thinking %}{% endif %}", None),
        ("{{ reasoning_effort }}[THINK]", Switch(rule=MISTRAL)),
        ("{{ reasoning_effort }} reasoning_mode_token no_think", Switch()),
        ("{% if not enable_thinking is defined %}{% set enable_thinking = false %}{% endif %}",
         ENABLE),
        ("{% if enable_thinking is defined and enable_thinking is false %}{% endif %}", ENABLE),
        ("{% set thinking = thinking | default(false) %}", THINKING),
        ("{% set thinking = thinking | default(true, true) %}", None),
        ("{% set enable_thinking = enable_thinking | d(false, boolean=true) %}", ENABLE),
        ("{# enable_thinking | default(true) #}", None),
        ("{% if thinking is not defined or thinking %}{% endif %}", THINKING),
        ("{{ low_effort }} truncate_history_thinking", ENABLE),
        ("{% set ns = namespace(enable_thinking=true) %}", ENABLE),
        ("{% if enable_thinking %}{% endif", None),
    ],
)  # fmt: skip
def test_a_template_tells_its_switch(template: str, switch: Switch | None) -> None:
    assert switch_of(template) == switch
