"""Real model directories, and the engine's answers for them.

MMROUTE_MODELS, MMROUTE_SMALL_MODELS and MMROUTE_TEXT_MODELS name directories of them. Vectors are
below MMROUTE_VECTORS, MMROUTE_IMAGE_VECTORS, MMROUTE_SMALL_VECTORS and MMROUTE_TEXT_VECTORS.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import tokenizers
import transformers
from comparison import read_vectors
from conformance import load_as_served
from format_helpers import same_ids, same_texts
from image_vectors import wrong_parts
from paths import real_models
from test_fast_path_conformance import ON, differences, everything_is_kept, load

from mmroute import ModelError, Normalizer, Reason
from mmroute.health.self_check import check_model
from mmroute.model.resolve import resolve_model
from mmroute.text import DecodeStream, load_tokenizer
from mmroute.tokenizers.engine_classes import engine_class
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer

__all__ = ["everything_is_kept"]  # a fixture


def models(variable: str = "MMROUTE_MODELS") -> Path:
    found = real_models(variable)
    assert found is not None, f"vectors of real models need {variable}"
    return found


def vectors(variable: str) -> list[Path]:
    root = os.environ.get(variable)
    if not root:
        return []
    found = sorted(Path(root).glob("*.jsonl"))
    assert found, f"{variable} is {root}, which holds no vectors"
    return found


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


SMALL: Final = vectors("MMROUTE_SMALL_VECTORS")
TEXT: Final = vectors("MMROUTE_TEXT_VECTORS")
LARGE: Final = sorted(
    [*vectors("MMROUTE_VECTORS"), *vectors("MMROUTE_IMAGE_VECTORS")], key=lambda path: path.stem
)  # those of one model follow each other
# The engine answers these, but by what its processor cache holds: images share a budget there.
ANSWERED_BY_CHANCE: Final = {
    "nemotron-nano-omni-v3": {"edge-2040x2040-2048x2048": "budget_exceeded"}
}
# The engine's tokenizer class is none for this byte-level vocabulary, and loses spaces.
UNHEALTHY: Final = {"deepseek-r1-distill-llama-synthetic": "text: "}
# The tokenizer of each is, byte for byte, that of its smallest sibling.
SIBLINGS: Final = {"qwen2.5-vl-7b-instruct", "qwen3-vl-4b-instruct", "qwen3-vl-8b-instruct"}


def directory_of(path: Path) -> Path:
    """The model directory that a file of vectors is of."""
    variable = "MMROUTE_SMALL_MODELS" if path in SMALL else "MMROUTE_MODELS"
    directory = models("MMROUTE_TEXT_MODELS" if path in TEXT else variable) / path.stem
    assert directory.is_dir(), directory
    return directory


@pytest.mark.parametrize("path", [*LARGE, *SMALL, *TEXT], ids=name_of)
def test_vectors(path: Path) -> None:
    """vLLM's answers; and the model is healthy, which is asked here since it is loaded."""
    meta, cases = read_vectors(path)
    model = load_as_served(directory_of(path), meta)
    failures = check_model(model.model).failures
    assert failures.startswith(UNHEALTHY.get(path.stem, "")), failures
    assert bool(failures) == (path.stem in UNHEALTHY), failures
    wrong = {case["id"]: parts for case in cases if (parts := wrong_parts(model, case))}
    for case_id, reason in ANSWERED_BY_CHANCE.get(path.stem, {}).items():
        assert wrong.pop(case_id)["exact"].startswith(f"inexact ({reason}:")
    assert not wrong, json.dumps(wrong, indent=1)


# No fast encoder takes the vocabularies of the small directories.
@pytest.mark.parametrize("path", [path for path in LARGE if path.stem not in SIBLINGS], ids=name_of)
@pytest.mark.usefixtures("everything_is_kept")
def test_vectors_with_every_fast_path(path: Path) -> None:
    meta, cases = read_vectors(path)
    normalizer = load(str(models() / path.stem), meta.get("model_id"), ON)
    assert not differences(normalizer, cases, times=2)
    without_chats = replace(normalizer, caches=normalizer.caches._replace(chats=None))
    assert not differences(without_chats, cases, times=2)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("internvl2-2b-finetune", Reason.TOKENIZER_UNVERIFIED),
        ("minicpm-v-4.5", Reason.UNKNOWN_FAMILY),
    ],
)
def test_a_model_that_is_not_covered_is_refused(name: str, reason: Reason) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model(str(models() / name))
    assert caught.value.reason is reason


def test_the_engine_s_choice_of_a_class() -> None:
    observed = json.loads((models("MMROUTE_TEXT_MODELS") / "tokenizer_classes.json").read_text())
    # transformers alone was asked, and vLLM keeps the file for these.
    kept = {"step5"}
    names = {"TokenizersBackend": "file", "CodeLlamaTokenizer": None}
    wrong = [
        (model_type, declared, made)
        for group in observed["groups"]
        for model_type in group["model_types"]
        if model_type not in kept
        for declared, made in group["declared_to_class"].items()
        if engine_class(model_type, None if declared == "null" else declared)
        != names.get(made, made)
    ]
    assert wrong == []


# Of these transformers makes the tokenizer that vLLM has; the others need remote code, or are
# given to mistral-common by it.
TOKENIZERS: Final = (
    "gemma-3-4b-it", "llava-1.5-7b-hf", "llava-next-video-7b-32k-hf-finetune",
    "llava-onevision-qwen2-0.5b-ov-hf", "pixtral-12b-hf", "qwen2.5-vl-3b-instruct",
)  # fmt: skip


@pytest.mark.parametrize("without", [None, "tokenizer.json"])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokenizers_are_what_transformers_loads(
    name: str, without: str | None, tmp_path: Path
) -> None:
    source = models() / name
    if without is not None:
        if not (source / "merges.txt").is_file():
            return  # it cannot be rebuilt
        copy = tmp_path / name
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns(without))
        source = copy
    reference = transformers.AutoTokenizer.from_pretrained(source)
    ours = load_tokenizer(source)
    assert ours.vocab_size == len(reference)
    same_ids(ours, lambda text: reference(text, add_special_tokens=False)["input_ids"])
    same_ids(ours, lambda text: reference(text)["input_ids"], special=True)
    same_texts(ours, reference.decode)


def test_a_sentencepiece_model_has_the_ids_of_its_tokenizer_json(tmp_path: Path) -> None:
    source = models() / "llava-1.5-7b-hf"
    for file in ("tokenizer.model", "added_tokens.json", "special_tokens_map.json"):
        shutil.copy(source / file, tmp_path / file)
    ours = load_tokenizer(tmp_path)
    reference = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    same_ids(ours, lambda text: reference.encode(text, add_special_tokens=False).ids)


@cache
def real(name: str) -> HfTokenizer:
    tokenizer = Normalizer.from_pretrained(models() / name).model.tokenizer
    assert isinstance(tokenizer, HfTokenizer)
    return tokenizer


QWEN, LLAMA = "qwen2.5-vl-3b-instruct", "llava-1.5-7b-hf"


@pytest.mark.parametrize(
    ("name", "prompt", "ids", "pieces"),
    [
        (QWEN, [], [101059, 102819, 144841, 5394], ["日本", "語", "🎉", " ok"]),
        (QWEN, [], [87, 11162, 236, 231, 379, 11162, 99, 97],
         ["x", "", "", " 🎉", " y", "", "", " 🦤"]),
        (QWEN, [], [87, 11162, 236, 9707, 1879], ["x", "", "", " \ufffdHello", " world"]),
        (QWEN, [], [64, 5691, 65], ["a", "", "\ufffdb"]),
        (QWEN, [], [9707, 151645, 1879], ["Hello", "", " world"]),
        (QWEN, [], [9707, 999999, 1879], ["Hello", "", " world"]),
        (QWEN, [87, 11162, 236], [231], ["🎉"]),  # tokenizers repeats the prompt: "x 🎉"
        (LLAMA, [], [29871, 243, 162, 145, 140], ["", "", "", "", "🎉"]),
        (LLAMA, [], [15043, 3186], ["Hello", " world"]),
        (LLAMA, [1], [15043, 3186], ["Hello", " world"]),
        (LLAMA, [1, 15043], [3186], [" world"]),
        (LLAMA, [1, 29901], [29871, 13, 15043, 3186], [" ", "\n", " Hello", " world"]),
        (LLAMA, [], [29871, 13], ["", "\n"]),
    ])  # fmt: skip
def test_pieces_of_tokenizers(
    name: str, prompt: list[int], ids: list[int], pieces: list[str]
) -> None:
    stream = DecodeStream(real(name), prompt_token_ids=prompt)
    assert list(map(stream.step, ids)) == pieces
