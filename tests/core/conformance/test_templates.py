"""Which chat template counts where a directory has several, or names another processor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from paths import VECTORS
from small_models import ALL_MODELS, CODE_FAMILIES, write_model
from template_cases import EVERY, JSON, TOKENIZER, directories, text_of

from mmroute import ModelError, Normalizer

FOLDER: Final = VECTORS / "templates"
TOOL: Final = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
BY_CODE: Final = {
    "deepseek_v32", "deepseek_v4", "deepseek_v41", "gpt_oss", "inkling_mm_model", "inkling_model",
    "kimi_k3",
}  # fmt: skip
NOT_LOADED: Final = {"small-dots3-note"}  # vLLM's class of it cannot be imported without a GPU
# The constructors of the published code take a template, or they take none.
KEPT_BY_CODE: Final = {
    "small-keye": JSON,
    "small-kimi-vl": JSON,
    "small-midashenglm": JSON,
    "small-moss-transcribe-diarize": JSON,
    "small-hyperclovax-vision-v2-code": TOKENIZER,
    "small-minicpm-o-2.6": TOKENIZER,
    "small-minicpm-v-2.6": TOKENIZER,
    "small-minicpm-v-4.5": TOKENIZER,
    "small-phi-4-multimodal": TOKENIZER,
}


# Not covered, though the engine answers: more than its name decides whether a class loads.
NOT_COVERED: Final = ("class LlavaProcessor", "class Qwen2VLProcessor")
WITHOUT_CLASS: Final = ("class nowhere", "class not in", "class None")


def loaded(directory: Path) -> Normalizer | None:
    try:
        return Normalizer.from_pretrained(directory)
    except ModelError:
        return None


def rendered(normalizer: Normalizer | None, tools: list[dict[str, Any]]) -> list[int] | None:
    """The token IDs of a chat; None for a refusal."""
    if normalizer is None:
        return None
    messages = [{"role": "user", "content": "Hello"}]
    routing = normalizer.normalize(messages=messages, tools=tools or None)
    return routing.token_ids.tolist() if routing.exact else None


def encoded(normalizer: Normalizer | None, text: str | None) -> list[int] | None:
    """The token IDs of a text; None for an empty one, which the engine refuses."""
    if normalizer is None or not text:
        return None
    ids: list[int] = normalizer.model.tokenizer.encode(text, add_special_tokens=False).tolist()
    return ids


@pytest.mark.conformance
@pytest.mark.parametrize("model", sorted(file.stem for file in FOLDER.glob("*.json")))
def test_template_is_the_one_that_the_engine_takes(model: str, tmp_path: Path) -> None:
    wanted = json.loads((FOLDER / f"{model}.json").read_text(encoding="utf-8"))
    found = dict(directories(ALL_MODELS[model](), every=model in EVERY))
    assert found.keys() == wanted.keys()
    for number, (name, files) in enumerate(found.items()):
        if wanted[name] is None:
            continue  # the engine does not load it
        normalizer = loaded(write_model(files, tmp_path / str(number) / model))
        for text, tools in zip(wanted[name], ([], [TOOL]), strict=True):
            ours = rendered(normalizer, tools)
            if ours is None and text:
                refused = model == "small-muse-spark" and name.startswith(WITHOUT_CLASS)
                assert refused or any(part in name for part in NOT_COVERED), name
            else:
                assert ours == encoded(normalizer, text), f"{name}, {tools}: {text!r}"


def test_every_model_is_asked() -> None:
    """Those with code of their own have no vectors, and others have no template."""
    chats = {
        name
        for name, files in ALL_MODELS.items()
        if name not in CODE_FAMILIES and not _by_code(files())
    }
    assert chats - NOT_LOADED == {file.stem for file in FOLDER.glob("*.json")}


def _by_code(files: dict[str, Any]) -> bool:
    return "config.json" not in files or files["config.json"]["model_type"] in BY_CODE


@pytest.mark.parametrize("model", CODE_FAMILIES)
def test_class_that_comes_with_the_model(model: str, tmp_path: Path) -> None:
    files = CODE_FAMILIES[model]()
    del files["chat_template.jinja"]
    files[JSON] = {"chat_template": text_of(JSON)}
    files[TOKENIZER]["chat_template"] = text_of(TOKENIZER)
    normalizer = loaded(write_model(files, tmp_path / model))
    for place, tools in ((KEPT_BY_CODE[model], []), (TOKENIZER, [TOOL])):
        assert rendered(normalizer, tools) == encoded(normalizer, text_of(place))
