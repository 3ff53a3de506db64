"""Small model directories: made-up vocabularies, the real special tokens and configuration fields.

They let the whole way run with the package index alone, and they are what
``tests/core/conformance/vectors`` was computed from: the same files, read by vLLM. Changing one
changes its fingerprint, and the conformance test then says that its vectors are stale.

Each is a file in ``tests/models``, whose README says what is written there.
``python tests/helpers/small_models.py DIRECTORY/small-qwen2.5-vl`` writes one of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from small_tokenizers import MODELS, tokenizer

if TYPE_CHECKING:
    from mmroute.model.resolved import ResolvedModel

Files = dict[str, Any]
_TEXT: Final = "{%- elif 'text' in part -%}"


def _branch(modality: str, written: str) -> str:
    return f"{{%- elif part.type == '{modality}' -%}}{written}"


def _text(name: str, replace: Mapping[str, str]) -> str:
    text = (MODELS / "shared" / name).read_text(encoding="utf-8")
    for old, new in replace.items():
        text = text.replace(old, new)
    return text


def _chat(parts: Mapping[str, str], before: str = "") -> str:
    """A template for parts: their type -> what it writes for one."""
    branches = "".join(_branch(*part) for part in parts.items())
    return before + _text("chat.jinja", {"PARTS": branches.replace("elif", "if", 1)})


def _made(value: dict[str, Any]) -> Any:
    """What an object of a model's file stands for: most stand for themselves."""
    match value:
        case {"$chat": parts, **rest}:
            return _chat(parts, **rest)
        case {"$text": name, **rest}:
            return _text(name, rest)
        case {"$tokenizer": base, **rest}:
            return tokenizer(base, **rest)
    return value


def _files(path: Path) -> Files:
    model: dict[str, Files] = json.loads(path.read_text(encoding="utf-8"), object_hook=_made)
    return model["files"]


def _models(folder: str) -> Mapping[str, Callable[[], Files]]:
    """Name -> what makes its files anew: JSON values, or text for a template."""
    return {path.stem: partial(_files, path) for path in sorted((MODELS / folder).glob("*.json"))}


SMALL_MODELS: Final = _models("basic")
"""Those that every other test runs on."""
CODE_FAMILIES: Final = _models("code")
"""Those whose processor is code that comes with the model.

The code is not here: ``tools/generate.py --code DIRECTORY`` lays that of DIRECTORY/MODEL beside
the files.
"""
FAMILY_MODELS: Final = {**_models("families"), **CODE_FAMILIES}
"""Those of further families, read by vLLM for ``conformance/vectors/families``."""
ALL_MODELS: Final = {**SMALL_MODELS, **FAMILY_MODELS}
RUST_MODELS: Final = {**ALL_MODELS, **_models("rust")}
"""As vLLM's Rust frontend was asked about them: some need other files for it."""
UNRECORDED_MODELS: Final = _models("unrecorded")
"""Those that have no vectors."""

_MEDIA: Final = json.loads((MODELS / "media.json").read_text(encoding="utf-8"))
MEDIA: Final[Mapping[str, Mapping[str, str]]] = {name: m["parts"] for name, m in _MEDIA.items()}
"""What the chat templates of these get for items that they do not write by themselves."""
MEDIA_ANSWERED: Final = [model for model in MEDIA if model != "small-glm-4.1v"]
"""Without GLM-4.1V, whose files have no processor of videos: mmroute refuses them."""


def media_model(name: str) -> Files:
    """The files of a small model that takes all its items.

    Its template writes them, and its videos have a processor and a token.
    """
    files = ALL_MODELS[name]()
    media = _MEDIA.get(name, {})
    for file, fields in media.get("files", {}).items():
        files[file] = files.get(file, {}) | fields
    branches = "".join(_branch(*part) for part in media.get("parts", {}).items())
    for file in ("chat_template.json", "chat_template.jinja"):
        if branches and file in files:
            inside, key = (
                (files, file) if file.endswith("jinja") else (files[file], "chat_template")
            )
            assert _TEXT in inside[key], name
            inside[key] = inside[key].replace(_TEXT, branches + _TEXT)
    return files


def write_items(model: ResolvedModel, template: Path) -> None:
    """Let a small model's template write videos and audio as well."""
    text = template.read_text(encoding="utf-8") if template.is_file() else ""
    for modality, rules in model.media.items():
        if _TEXT in text and f"part.type == '{modality}'" not in text:
            spec = getattr(model.family, str(modality))
            written = spec.chat_text or model.tokenizer.decode([*rules.target])
            text = text.replace(_TEXT, _branch(modality, written) + _TEXT)
    if text:
        template.write_text(text, encoding="utf-8")


def as_qwen3_5(files: Files) -> None:
    """Make a small Qwen3-VL a hybrid model, whose engine chooses the block size."""
    config = files["config.json"]
    config |= {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"]}


def write_model(files: Files, directory: Path) -> Path:
    """Write a model directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def changed_files(files: Files, file: str, fields: Mapping[str, Any]) -> Files:
    """The files of a model, of which one has other fields; None takes one out."""
    changed = {**files.get(file, {}), **fields}
    return {**files, file: {name: value for name, value in changed.items() if value is not None}}


def fingerprint(files: Files) -> str:
    """SHA-256 over the names and contents of a model's files."""
    digest = hashlib.sha256()
    for name in sorted(files):
        content = files[name]
        if not isinstance(content, str):
            content = json.dumps(content, ensure_ascii=False, indent=1)
        digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()


if __name__ == "__main__":
    import sys

    for _directory in map(Path, sys.argv[1:]):
        write_model(ALL_MODELS[_directory.name](), _directory)
