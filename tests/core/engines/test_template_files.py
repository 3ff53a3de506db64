"""Which chat template the engine takes of a model with several files of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmroute import ModelError, Reason
from mmroute.engines.vllm.templates import chat_templates
from mmroute.model_directory import find_model

JINJA, LEGACY = "chat_template.jinja", "chat_template.json"
DEFAULT, TOOLS, OTHER = (
    f"additional_chat_templates/{name}.jinja" for name in ("default", "tool_use", "other")
)

# Files -> the ones whose templates vLLM 0.33.0 took without and with tools; None: it failed.
# Asked of it for Qwen3.5, Llama 4 and InternVL.
TAKEN = [
    ([JINJA], JINJA, JINJA),
    ([JINJA, OTHER, TOOLS], None, TOOLS),
    ([TOOLS], None, TOOLS),
    ([TOOLS, DEFAULT], None, TOOLS),
    ([DEFAULT], DEFAULT, DEFAULT),
    ([JINJA, DEFAULT], JINJA, DEFAULT),
    (["processor_config.json", TOOLS], "processor_config.json", TOOLS),
]


def write(root: Path, files: list[str]) -> None:
    for name in files:
        path = root / name
        path.parent.mkdir(exist_ok=True)
        is_json = name.endswith(".json")
        template = f"of {name}"
        path.write_text(json.dumps({"chat_template": template}) if is_json else template)


@pytest.mark.parametrize(("files", "without_tools", "with_tools"), TAKEN)
def test_a_processor_and_its_tokenizer_take_templates_of_their_own(
    files: list[str], without_tools: str | None, with_tools: str, tmp_path: Path
) -> None:
    write(tmp_path, files)
    plain, tools = chat_templates(find_model(str(tmp_path)))
    assert (plain and plain.source) == (without_tools and f"of {without_tools}")
    assert tools is not None
    assert tools.source == f"of {with_tools}"


def test_a_tokenizer_takes_the_named_default_before_the_single_file(tmp_path: Path) -> None:
    write(tmp_path, [JINJA, DEFAULT])
    plain, tools = chat_templates(find_model(str(tmp_path)), processor=False)
    assert plain is not None
    assert tools is not None
    assert plain.source == tools.source == f"of {DEFAULT}"


def test_named_templates_beside_the_old_file_are_refused(tmp_path: Path) -> None:
    """No processor is loaded then, and the engine does not start."""
    write(tmp_path, [LEGACY, TOOLS])
    with pytest.raises(ModelError, match="with which the engine does not start") as caught:
        chat_templates(find_model(str(tmp_path)))
    assert caught.value.reason is Reason.INVALID_CONFIG_FIELD
    assert chat_templates(find_model(str(tmp_path)), processor=False)[1] is not None
