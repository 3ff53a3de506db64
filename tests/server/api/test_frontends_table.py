"""The table of `tests/core/conformance/RUST.md`: what vLLM's two frontends make of one request.

Both columns are answers for a small model, decoded. The vectors of each frontend prove them.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from small_models import SMALL_MODELS, write_model

from mmroute import Normalizer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.engines.vllm_rust.settings import RustSettings

PAGE = (ROOT / "tests" / "core" / "conformance" / "RUST.md").read_text(encoding="utf-8")
HI = [{"role": "user", "content": "Hi"}]
PARTS = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
LOOP = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "[1]"}}

EXAMPLES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("texts of several parts, template with texts", LOOP, {"messages": [{"role": "user", "content": PARTS}]}),
    ("`developer`, template without that role", LOOP,
     {"messages": [{"role": "developer", "content": "Be brief."}, *HI]}),
    ("a user's empty text", LOOP, {"messages": [{"role": "user", "content": ""}]}),
    ("an assistant's null without calls", LOOP, {"messages": [*HI, {"role": "assistant", "content": None}]}),
    ("the name of a message", "{{ messages[0] }}", {"messages": [{**HI[0], "name": "bob"}]}),
    ("tools, a model without a tool parser", "{{ tools | tojson }}", {"messages": HI, "tools": TOOLS}),
    ("no tools", "{{ tools is defined }}", {"messages": HI}),
    ("arguments that are a list", "{{ messages[0].tool_calls[0].function.arguments | tojson }}",
     {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}]}),
    ("a mapping in a text", "{{ messages[0] }}", {"messages": HI}),
    ("an item named as a method", "{{ v.items == 1 }}", {"messages": HI, "chat_template_kwargs": {"v": {"items": 1}}}),
    ("is a text a sequence", "{{ 'a' is sequence }}", {"messages": HI}),
    ("numbers in JSON", "{{ v | tojson }}", {"messages": HI, "chat_template_kwargs": {"v": [1e-05, 1e-07]}}),
    ("`null` in the template's variables", "{{ v is defined }}", {"messages": HI, "chat_template_kwargs": {"v": None}}),
    ("variables named as the engine's own", "{{ add_generation_prompt }}",
     {"messages": HI, "chat_template_kwargs": {"add_generation_prompt": True}}),
    ("`mm_processor_kwargs`, empty", LOOP, {"messages": HI, "mm_processor_kwargs": {}}),
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(SMALL_MODELS["small-llava-1.5"](), tmp_path_factory.mktemp("m") / "model")


@pytest.mark.parametrize(("what", "template", "request_"), EXAMPLES)
def test_a_row_of_the_table(
    model: Path, what: str, template: str, request_: dict[str, Any]
) -> None:
    cells = [what]
    for settings in (VllmSettings, RustSettings):
        with warnings.catch_warnings(action="ignore"):
            normalizer = Normalizer.from_pretrained(
                model, model_id="model", engine_settings=settings(chat_template=template)
            )
        routing = normalizer.normalize(**request_, add_generation_prompt=False)
        decode = normalizer.model.tokenizer.decode
        cells.append(code(decode(routing.token_ids.tolist())) if routing.exact else "refused")
    assert f"| {' | '.join(cells)} |\n" in PAGE


def test_the_table_has_these_rows() -> None:
    _, _, table = PAGE.partition("| Rust frontend |\n| --- | --- | --- |\n")
    rows = table.partition("\n\n")[0].splitlines()
    assert [row.split(" | ")[0] for row in rows] == [f"| {what}" for what, *_ in EXAMPLES]


def code(text: str) -> str:
    return f"`{text}`".replace("\n", "\\n").replace("|", "\\|")
