"""The files of one model. They are read once and never written; no other module opens them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from mmroute.errors import ModelError, Reason, json_type, malformed, nearest, needs_extra, quoted

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

EMBEDDED_MODEL = "pixtral-12b-2409"
"""The model that needs no download: its tokenizer is a file of the mistral-common package."""

_EMBEDDED_TEKKEN = "tekken_240911.json"

TOKENIZER_CONFIGURATION: Final = (
    "config.json", "params.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "processor_config.json", "chat_template.json", "chat_template.jinja",
    "additional_chat_templates/*.jinja",
)  # fmt: skip
"""The files beside a vocabulary on which texts and token IDs depend: the class that reads it, the
added tokens, the chat templates."""

MODEL_FILES: Final = (
    *TOKENIZER_CONFIGURATION, "tekken.json", "tokenizer.model.v*", "tokenizer.json",
    "preprocessor_config.json", "video_preprocessor_config.json", "generation_config.json",
)  # fmt: skip
"""Configuration, tokenizer and template files, some by pattern. No pattern matches weights."""

TOKENIZER_FILES: Final = (
    *TOKENIZER_CONFIGURATION, "tekken.json", "tokenizer.json", "tokenizer.model",
    "tokenizer.model.v*", "tiktoken.model", "*.tiktoken", "vocab.json", "merges.txt",
)  # fmt: skip
"""These files and the vocabularies of all formats."""

# A path with a directory in it, which is neither JSON nor a template with any effect.
_LINK: Final = re.compile(r"\s*(?:\.{0,2}/)?[\w.@+-]+(?:/[\w.@+-]+)+\s*")
_LONGEST_LINK: Final = 1024


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A place in a model directory, written ``config.json:vision_config.patch_size``.

    A number is an index of a list.

    >>> FieldRef.parse("config.json:vision_config.patch_size").path
    ('vision_config', 'patch_size')
    """

    file: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> FieldRef:
        """Read the written form."""
        file, colon, dotted = text.partition(":")
        if not (file and colon and dotted):
            raise ValueError(f"{text!r} is not of the form FILE:FIELD, e.g. config.json:model_type")
        return cls(file, tuple(dotted.split(".")))

    def __str__(self) -> str:
        return f"{self.file}:{'.'.join(self.path)}"


_PREPROCESSOR: Final = "preprocessor_config.json"
_PROCESSOR: Final = "processor_config.json"
PARTS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "image_processor": (("image_processor",), (_PREPROCESSOR,)),
    "video_processor": (
        ("video_processor",),
        ("video_preprocessor_config.json", _PREPROCESSOR),
    ),
    "feature_extractor": (("feature_extractor", "audio_processor"), (_PREPROCESSOR,)),
}
"""Part of a model's processor -> its names in processor_config.json, and the files of its own, of
which the first that exists is read. A place may name a part in place of a file."""
_OF_WHOLE: Final = (_PROCESSOR, _PREPROCESSOR, "tokenizer_config.json")
_EXTRA_TOKENS = FieldRef("tokenizer_config.json", ("extra_special_tokens",))


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The paths of a model's files, and the values that were read from them."""

    name: str  # the model's name, as the caller gave it
    root: Path  # the model directory
    commit: str | None = None  # the hub commit of the files; None for a plain directory
    # The paths of files that are not at `root / name`, by name.
    renamed: Mapping[str, Path] = field(default_factory=dict)
    _json: dict[str, JsonValue] = field(default_factory=dict, repr=False)

    def path(self, file: str) -> Path:
        """The path of a file, whether or not it exists."""
        return self.renamed.get(file, self.root / file)

    def has(self, file: str) -> bool:
        """Whether the model has this file."""
        return self.path(file).is_file()

    def text(self, file: str) -> str:
        """A file's text."""
        try:
            text = self.path(file).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ModelError(
                Reason.MISSING_FILE,
                f"{self.name}: {file} is missing from {self.root}. "
                f"It has: {', '.join(self.names()) or 'none of the files that a model needs'}.",
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise malformed(f"{self.path(file)} cannot be read: {error}") from error
        if instead := what_stands_instead(text):
            raise malformed(f"{self.path(file)} {instead}")
        return text

    def json(self, file: str) -> JsonValue:
        """A file's JSON value, parsed once; long tables of a tokenizer may be a `msgspec.Raw`."""
        if file not in self._json:
            try:
                # It takes two thirds of the time of `json`, gives the same values, and is stricter.
                raw = self.path(file).read_bytes()
                self._json[file] = _PARSERS.get(file, msgspec.json.decode)(raw)
            except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
                self._json[file] = self._parsed(file)
        return self._json[file]

    def _parsed(self, file: str) -> JsonValue:
        text = self.text(file)
        try:
            value: JsonValue = json.loads(text.removeprefix("\ufeff"))
        except (ValueError, RecursionError) as error:
            raise malformed(f"{self.path(file)} is not JSON: {error}.") from error
        return value

    def object(self, file: str) -> Mapping[str, JsonValue]:
        """A file's JSON object; an empty one if the file is missing."""
        if file not in self._json and not self.has(file):
            return {}
        value = self.json(file)
        if not isinstance(value, dict):
            raise malformed(f"{self.path(file)} must hold a JSON object, found {json_type(value)}.")
        return value

    def effective(self, ref: FieldRef) -> FieldRef:
        """The place from which the engine reads a field.

        A part of a processor that stands in processor_config.json replaces all of the file of its
        own. Of a field of the processor itself the first place counts that has it. Tokens in
        extra_special_tokens of tokenizer_config.json replace its fields of the same names.
        Source: transformers ``image_processing_base.py``, ``video_processing_utils.py``
        (`get_video_processor_dict`), ``feature_extraction_utils.py``,
        ``tokenization_utils_base.py`` (`_from_pretrained`).
        """
        if ref.file in PARTS:
            nested, files = PARTS[ref.file]
            for name in nested:
                if self._is_nested(name):
                    return FieldRef(_PROCESSOR, (name, *ref.path))
            return FieldRef(next(filter(self.has, files), files[0]), ref.path)
        if ref.file == "processor":
            places = [FieldRef(file, ref.path) for file in _OF_WHOLE]
            return next((place for place in places if self.lookup(place)[0]), places[0])
        if ref.file == _EXTRA_TOKENS.file:
            extra = FieldRef(ref.file, (*_EXTRA_TOKENS.path, *ref.path))
            return extra if self.lookup(extra)[0] else ref
        return ref

    def lookup(self, ref: FieldRef) -> tuple[bool, JsonValue]:
        """Whether a field has a value other than null, and the value."""
        value: Any = self.object(ref.file)
        for key in ref.path:
            if isinstance(value, list) and key.isdecimal():
                value = dict(enumerate(value)).get(int(key))
            else:
                value = value.get(key) if isinstance(value, dict) else None
            if value is None:
                return False, None
        return True, value

    def has_null(self, ref: FieldRef) -> bool:
        """Whether a field is there and holds null."""
        _, within = self.lookup(FieldRef(ref.file, ref.path[:-1]))
        return isinstance(within, dict) and within.get(ref.path[-1], ref) is None

    def has_part(self, part: str) -> bool:
        """Whether one of the `PARTS` of a model's processor can be read."""
        nested, files = PARTS[part]
        return any(map(self._is_nested, nested)) or any(map(self.has, files))

    def _is_nested(self, part: str) -> bool:
        return isinstance(self.object(_PROCESSOR).get(part), dict)

    def names(self, patterns: Sequence[str] = MODEL_FILES) -> list[str]:
        """The names of the model's files that match the patterns."""
        paths = (path for pattern in patterns for path in self.root.glob(pattern))
        names = (str(path.relative_to(self.root)) for path in paths)
        return [*self.renamed, *(name for name in names if name not in self.renamed)]


def is_local(model: str) -> bool:
    """Whether a model is a directory, or the embedded one: neither has revisions."""
    return model == EMBEDDED_MODEL or Path(model).expanduser().is_dir()


def find_model(
    model: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    patterns: Sequence[str] = MODEL_FILES,
) -> ModelFiles:
    """Find a model's files: a directory, the embedded model, or a name on the hub."""
    if not model:
        raise ModelError(Reason.MODEL_NOT_FOUND, "The model's name is empty.")
    path = Path(model).expanduser()
    if revision is not None and is_local(model):
        raise ModelError(
            Reason.MODEL_NOT_FOUND,
            f"{model} has no revision {revision!r}: only models on the hub have revisions.",
        )
    if path.is_dir():
        return ModelFiles(name=model, root=path, renamed=_links_as_text(path))
    if path.suffix == ".gguf" and path.is_file():
        raise ModelError(
            Reason.TOKENIZER_UNVERIFIED,
            f"{model} is a GGUF file, for which vLLM has no tokenizer of its own: it uses the "
            "original model's. Give that model's directory or name.",
        )
    if path.exists():
        raise ModelError(
            Reason.MODEL_NOT_FOUND,
            f"{model} is a file. Give the model directory that holds it: {path.parent}",
        )
    if model == EMBEDDED_MODEL:
        return _embedded()
    return _from_hub(model, revision, token, patterns)


def what_stands_instead(text: str) -> str:
    """The end of an error message about a file that only points to another one; else empty.

    >>> what_stands_instead("../other-model/tokenizer.json")[:57]
    "holds the text of a link, '../other-model/tokenizer.json'"
    """
    if text.startswith("version https://git-lfs"):
        return "is a Git LFS pointer: fetch the file itself, with `git lfs pull`."
    if _LINK.fullmatch(text) is None:
        return ""
    return (
        f"holds the text of a link, {quoted(text.strip())}, and not the file to which the link "
        "led: links were lost when the directory was copied or checked out. Put that file here."
    )


def _links_as_text(root: Path) -> dict[str, Path]:
    """The targets of files that hold the text of a relative link, as Git writes them, by name."""
    targets: dict[str, Path] = {}
    for path in root.iterdir():
        if path.is_file() and path.stat().st_size <= _LONGEST_LINK:
            text = path.read_text(encoding="utf-8", errors="replace").strip()
            target = root / text
            follows = _LINK.fullmatch(text) is not None and not Path(text).is_absolute()
            if follows and target.name == path.name and target.is_file():
                targets[path.name] = target
    return targets


def _tokenizer_json(text: bytes) -> dict[str, Any]:
    """A tokenizer.json without its long parts, which the engine's library parses itself."""
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return {
        name: _fields_but_long(raw) if name == "model" else msgspec.json.decode(raw)
        for name, raw in fields.items()
    }


def _fields_but_long(text: bytes | msgspec.Raw) -> dict[str, Any]:
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return {
        name: raw if name in ("vocab", "merges") else msgspec.json.decode(raw)
        for name, raw in fields.items()
    }


_PARSERS: Final[Mapping[str, Callable[[bytes], JsonValue]]] = {
    "tokenizer.json": _tokenizer_json,
    "tekken.json": _fields_but_long,  # mistral-common parses all of it
}


def _embedded() -> ModelFiles:
    what = f"{EMBEDDED_MODEL}, whose tokenizer comes with mistral-common,"
    with needs_extra("mistral", "mistral_common", what):
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer  # slow

    data = Path(MistralTokenizer._data_path())  # noqa: SLF001 - the package's only name for it
    tekken = data / _EMBEDDED_TEKKEN
    if not tekken.is_file():
        raise ModelError(
            Reason.MODEL_NOT_FOUND,
            f"The installed mistral-common has no {_EMBEDDED_TEKKEN} in {data}; "
            "install a version that carries its tokenizers (1.13.1 or later).",
        )
    return ModelFiles(name=EMBEDDED_MODEL, root=data, renamed={"tekken.json": tekken})


def _from_hub(
    model: str, revision: str | None, token: str | None, patterns: Sequence[str]
) -> ModelFiles:
    import huggingface_hub  # only hub names need it
    from huggingface_hub import errors as hub

    if model.count("/") > 1 or model.startswith((".", "/", "~")):
        raise ModelError(
            Reason.MODEL_NOT_FOUND, f"There is no directory {model}.{_near(Path(model))}"
        )
    try:
        root = huggingface_hub.snapshot_download(
            model, revision=revision, token=token, allow_patterns=list(patterns)
        )
    except (hub.HfHubHTTPError, hub.HFValidationError, hub.LocalEntryNotFoundError) as error:
        raise ModelError(
            Reason.MODEL_NOT_FOUND,
            f"{model} is not a directory{_near(Path(model))} and could not be fetched from the "
            f"hub: {str(error).strip().splitlines()[0]} "
            f"(offline: {huggingface_hub.constants.HF_HUB_OFFLINE}; a private or gated model needs "
            f"HF_TOKEN; `{EMBEDDED_MODEL}` needs no download).",
        ) from error
    except OSError as error:
        raise ModelError(
            Reason.MODEL_NOT_FOUND, f"{model} could not be fetched from the hub: {error}"
        ) from error
    snapshot = Path(root)
    return ModelFiles(name=model, root=snapshot, commit=snapshot.name)


def _near(path: Path) -> str:
    siblings = path.parent.iterdir() if path.parent.is_dir() else ()
    close = nearest(path.name, (sibling.name for sibling in siblings if sibling.is_dir()))
    return f" (did you mean {path.parent / close}?)" if close else ""
