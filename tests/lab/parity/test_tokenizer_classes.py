"""A family spec that says a wrong tokenizer class is found by the built-in requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oracle_helpers import RightEngine
from small_vocabularies import SPECIALS, byte_level

from mmroute import Normalizer
from mmroute.engine import find_engine
from mmroute.families.matching import match_family
from mmroute.families.spec import TokenizerSpec
from mmroute.lab.parity.comparison import Verdict, compare
from mmroute.lab.parity.suite import built_in_cases
from mmroute.model.resolve import resolve_files
from mmroute.model_directory import find_model


def write(root: Path) -> None:
    """A Llama of class GPT2Tokenizer, whose file has what that class does not keep."""
    backend = byte_level("\u0120unmerged", ignore_merges=True)
    backend.add_special_tokens([text for text in SPECIALS if text != "<|endoftext|>"])
    backend.save(str(root / "tokenizer.json"))
    config: dict[str, Any] = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 512,
    }
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    (root / "config.json").write_text(json.dumps(config))
    (root / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "GPT2Tokenizer", "chat_template": template})
    )


def test_a_wrong_class_in_a_spec_is_found(tmp_path: Path) -> None:
    write(tmp_path)
    right = Normalizer.from_pretrained(tmp_path)
    files = find_model(str(tmp_path))
    family = match_family(files)
    wrong = TokenizerSpec(pipelines={"GPT2Tokenizer": "file"})
    family = family.model_copy(update={"tokenizer": wrong})
    planted = resolve_files(files, family, find_engine("vllm"), None)
    cases = built_in_cases(planted)
    findings = compare(planted, RightEngine(right.model), cases)
    kinds = {f.case.kind for f in findings if f.verdict is Verdict.SILENT}
    assert "special-tokens" in kinds
