"""Versions: what is said of running ones, generated lists, template files."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from generate_lists import FILES, MMROUTE
from ports import read_versions
from transformers import PreTrainedTokenizerBase

from mmroute import ModelError, Reason
from mmroute.chat.template_parameters import TRANSFORMERS
from mmroute.engine import find_engine
from mmroute.engines.running import Evidence, running_engine
from mmroute.engines.vllm.templates import chat_templates
from mmroute.model_directory import find_model

TOO_OLD = ("vllm", "0.12.0")
TOO_NEW = ("vllm", "0.34.0")


@pytest.mark.parametrize(
    ("engine", "said", "evidence"),
    [
        ("vllm", "0.33.0", Evidence.PROVED),
        ("vllm", "0.33.0+cu130", Evidence.PROVED),
        ("vllm", "0.31.0", Evidence.PROVED),
        ("vllm", "0.33.1", Evidence.UNKNOWN),  # nobody has seen it
        ("vllm", "0.33.0.post1", Evidence.UNKNOWN),
        ("vllm", "0.33", Evidence.UNKNOWN),
        ("vllm", "0.20.0", Evidence.READ),
        ("sglang", "0.5.23", Evidence.PROVED),
        ("sglang", "0.5.20", Evidence.PROVED),
        ("sglang", "0.5.19", Evidence.UNKNOWN),
        ("sglang", "0.5.23.post1", Evidence.UNKNOWN),
        (*TOO_OLD, Evidence.UNKNOWN),
        (*TOO_NEW, Evidence.UNKNOWN),
        ("vllm", "0.33.1rc1.dev7+g0a1b2c3", Evidence.UNKNOWN),
        ("vllm", "1.0.0", Evidence.UNKNOWN),
        ("vllm", "", Evidence.UNKNOWN),
        ("vllm", "nightly\nof today", Evidence.UNKNOWN),
        ("another", "0.33.0", Evidence.UNKNOWN),
    ],
)
def test_a_version_is_proved_read_or_unknown(engine: str, said: str, evidence: Evidence) -> None:
    running = running_engine(engine, said)
    assert running.evidence is evidence
    assert evidence in str(running)
    assert "\n" not in str(running)


@pytest.mark.parametrize(
    ("engine", "said", "matched", "says"),
    [
        ("vllm", "0.33.0", "vllm", ""),
        ("vllm", "0.27.0", "vllm==0.28", ""),
        ("vllm", "0.33.1", "vllm", "unknown"),
        ("vllm", "0.31.0", "vllm", "'vllm==0.31.0'"),
        ("vllm", "0.27.1", "vllm==0.28", ""),
        ("sglang", "0.5.23", "sglang", ""),
        ("sglang", "0.5.22", "sglang", "'sglang==0.5.22'"),
        ("vllm", "0.28.0", "vllm", "'vllm==0.28.0'"),
        ("vllm", "0.33.0", "vllm==0.28", "'vllm==0.33.0'"),
        ("sglang", "0.5.23", "vllm", "'sglang==0.5.23'"),
        (*TOO_OLD, "vllm", "unknown"),
        (*TOO_NEW, "vllm", "unknown"),
        ("vllm", "", "vllm", "unknown"),
    ],
)
def test_other_rules_than_those_matched_are_told(
    engine: str, said: str, matched: str, says: str
) -> None:
    warning = running_engine(engine, said).warning(find_engine(matched))
    assert says in warning
    assert bool(says) == bool(warning)


@pytest.mark.parametrize("name", FILES)
def test_a_list_is_of_the_versions_that_were_read(name: str) -> None:
    read = json.loads((MMROUTE / name).read_text(encoding="utf-8"))["read"]
    assert read == {package: read_versions()[package] for package in FILES[name][1]}


def test_the_parameters_are_those_of_the_installed_function() -> None:
    named = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    assert named.keys() - {"kwargs"} == TRANSFORMERS


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
