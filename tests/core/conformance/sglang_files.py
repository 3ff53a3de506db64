"""SGLang's vectors: the files of their models, and their answers by version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mistral_common
from comparison import read_vectors
from packaging.version import Version
from paths import VECTORS
from small_models import ALL_MODELS

FOLDER = VECTORS / "sglang"

_TEKKEN = "-tekken"  # with the vocabulary that comes with mistral-common
_PROBE = "-probe"  # with a chat template that shows all that it gets
_SHOWS_ALL = (
    "{{ messages | tojson }} {{ tools | tojson if tools else 'no tools' }} "
    "{{ thinking is defined and thinking }} {{ enable_thinking is defined and enable_thinking }} "
    "{{ reasoning_effort if reasoning_effort is defined else 'no effort' }}"
    "{% for message in messages %}{% endfor %}"
)
# What SGLang needs of a model's files, and vLLM does not.
_FIELDS: dict[str, dict[str, dict[str, Any]]] = {
    "small-deepseek-ocr": {
        "config.json": {"auto_map": {"AutoModel": "modeling_deepseekocr.DeepseekOCRForCausalLM"}},
        "processor_config.json": {
            "candidate_resolutions": [[1024, 1024]], "patch_size": 16, "downsample_ratio": 4,
        },
    },
    "small-llama-4": {"tokenizer_config.json": {"pad_token": "<|eot|>"}},
    "small-nemotron-nano-vl": {"tokenizer_config.json": {"unk_token": "<|endoftext|>"}},
}  # fmt: skip


def files_of(model: str) -> dict[str, Any]:
    """The files of one model."""
    files = ALL_MODELS[model.removesuffix(_TEKKEN).removesuffix(_PROBE)]()
    if model.endswith(_PROBE):
        files["tokenizer_config.json"]["chat_template"] = _SHOWS_ALL
    if model.endswith(_TEKKEN):
        config = files["config.json"]
        text = {**config["text_config"], "vocab_size": 131072}
        files["config.json"] = {**config, "text_config": text, "image_token_index": 10}
        tekken = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
        del files["tokenizer.json"]
        return {**files, "tekken.json": tekken.read_text(encoding="utf-8")}
    changed = {f: {**files.get(f, {}), **own} for f, own in _FIELDS.get(model, {}).items()}
    return {**files, **changed}


def recorded(model: str, *, after: str = "0", since: str = "0") -> list[dict[str, Any]]:
    """The requests for a model, with the answers of the first version after or since one."""
    _, cases = read_vectors(FOLDER / f"{model}.jsonl")
    answers = {case["id"]: case["expect"] for case in cases}
    folders = [path.parent for path in FOLDER.glob(f"*/{model}.jsonl")]
    for folder in sorted(folders, key=lambda path: Version(path.name), reverse=True):
        if Version(after) < Version(folder.name) >= Version(since):
            _, differing = read_vectors(folder / f"{model}.jsonl")
            answers.update((case["id"], case["expect"]) for case in differing)
    return [{**case, "expect": answers[case["id"]]} for case in cases]
