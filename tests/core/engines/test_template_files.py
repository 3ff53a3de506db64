"""Which chat template the engine takes of a model with several files of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmroute import ModelError, Reason
from mmroute.engines.vllm.templates import chat_templates
from mmroute.model_directory import find_model

JINJA, LEGACY = "chat_template.jinja", "chat_template.json"
TOOLS, OTHER = (f"additional_chat_templates/{name}.jinja" for name in ("tool_use", "other"))


def write(root: Path, files: list[str]) -> None:
    for name in files:
        path = root / name
        path.parent.mkdir(exist_ok=True)
        is_json = name.endswith(".json")
        template = f"of {name}"
        path.write_text(json.dumps({"chat_template": template}) if is_json else template)


def test_a_template_of_another_name_is_never_taken(tmp_path: Path) -> None:
    """vLLM 0.33.0 fails without tools, asked for Qwen3.5, Llama 4 and InternVL."""
    write(tmp_path, [JINJA, OTHER, TOOLS])
    plain, tools = chat_templates(find_model(str(tmp_path)))
    assert plain is None
    assert tools is not None
    assert tools.source == f"of {TOOLS}"


def test_named_templates_beside_the_old_file_are_refused(tmp_path: Path) -> None:
    """No processor is loaded then, and the engine does not start."""
    write(tmp_path, [LEGACY, TOOLS])
    with pytest.raises(ModelError, match="with which the engine does not start") as caught:
        chat_templates(find_model(str(tmp_path)))
    assert caught.value.reason is Reason.INVALID_CONFIG_FIELD
    assert chat_templates(find_model(str(tmp_path)), processor=False)[1] is not None
