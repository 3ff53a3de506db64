"""Write the table of `docs/frontends.md`: what vLLM's two frontends make of one request.

    python tools/compare_frontends.py

Both columns are mmroute's answers for a small model, decoded. The vectors of each frontend
(`tests/core/conformance`) prove them.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

from vector_files import ROOT

PAGE = ROOT / "docs" / "frontends.md"
BEGIN, END = "<!-- table: tools/compare_frontends.py -->", "<!-- end of the table -->"
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


def rows() -> list[tuple[str, ...]]:
    """What is asked, and the prompt of each frontend."""
    from small_models import SMALL_MODELS, write_model

    from mmroute import Normalizer
    from mmroute.engines.vllm.settings import VllmSettings
    from mmroute.engines.vllm_rust.settings import RustSettings

    found: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = write_model(SMALL_MODELS["small-llava-1.5"](), Path(folder) / "model")
        for what, template, request in EXAMPLES:
            texts = []
            for settings in (VllmSettings, RustSettings):
                normalizer = Normalizer.from_pretrained(
                    model, model_id="model", engine_settings=settings(chat_template=template)
                )
                routing = normalizer.normalize(**request, add_generation_prompt=False)
                decode = normalizer.model.tokenizer.decode
                text = code(decode(routing.token_ids.tolist())) if routing.exact else "refused"
                texts.append(text)
            found.append((what, *texts))
    return found


def code(text: str) -> str:
    return f"`{text}`".replace("\n", "\\n").replace("|", "\\|")


def page() -> str:
    """The page with the table as it is computed now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    head = ("| request | Python frontend | Rust frontend |", "| --- | --- | --- |")
    lines = [*head, *(f"| {' | '.join(row)} |" for row in rows())]
    return before + BEGIN + "\n\n" + "\n".join(lines) + "\n\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
