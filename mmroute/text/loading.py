"""Any tokenizer, from wherever it is: `load_tokenizer`."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from mmroute.errors import (
    ModelError,
    Reason,
    did_you_mean,
    install_command,
    malformed,
    needs_extra,
)
from mmroute.families.matching import match_family
from mmroute.families.spec import FamilySpec, TokenizerSpec
from mmroute.model_directory import TOKENIZER_CONFIGURATION, TOKENIZER_FILES, ModelFiles, find_model
from mmroute.reuse.fast_paths import REFERENCE_ONLY
from mmroute.text.codec import Loaded, OwnCodec
from mmroute.text.detection import FileKind, kind_of_file
from mmroute.text.loaded_tokenizer import LoadedTokenizer
from mmroute.text.pieces import pieces_of
from mmroute.tokenizers import Codec
from mmroute.tokenizers.engine_classes import NOTHING_ADDED, AddedTokens

ENTRY_POINTS: Final = "mmroute.tokenizers"
"""The entry point group in which packages name tokenizers of their own."""

_OWN: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_BY_NAME: Final = {
    "tokenizer.json": FileKind.TOKENIZER_JSON,
    "tekken.json": FileKind.TEKKEN,
    "vocab.json": FileKind.VOCAB_JSON,
}
_USUAL_NAMES: Final = {kind: name for name, kind in _BY_NAME.items()} | {
    FileKind.SENTENCEPIECE: "tokenizer.model"
}
_SHOWN: Final = 30  # files of a directory: enough to recognise it
_MISTRAL: Final = "tokenizer.model.v*"
_LOOKED_FOR: Final = (
    "tokenizer.json, tekken.json, tokenizer.model.v* (Mistral), tokenizer.model (SentencePiece or "
    "tiktoken), *.tiktoken, tiktoken.model, vocab.json with merges.txt"
)


def load_tokenizer(
    source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None
) -> LoadedTokenizer:
    """Load a tokenizer of any format, detected by content.

    Args:
        source: the tokenizer to load. The first of these that fits counts:
            a file (``tokenizer.json``, ``tekken.json``, ``tokenizer.model``, ``*.tiktoken``,
            ``vocab.json``), with the configuration that stands beside it;
            a directory with such files;
            ``module:Class``, or a name in the entry point group ``mmroute.tokenizers``. The class
            is called without arguments, and gives a `Codec`;
            a name of a model or encoding of OpenAI (``gpt-4o``, ``o200k_base``), by tiktoken;
            a name on the hub, from which only tokenizer and configuration files are fetched.
        revision: hub branch, tag or commit.
        token: hub access token, instead of the one from the environment.

    Raises:
        ModelError: `model_not_found`, `malformed_file`, `special_token_split`,
            `unsupported_tokenizer`: what was looked for, what was found, and the remedy.
    """
    name = os.fspath(source)
    path = Path(name).expanduser()
    if path.is_dir():
        return _from_directory(find_model(name, revision=revision))
    loaded = _from_file(name, path) if path.is_file() else _by_name(name)
    if loaded is not None:
        if revision is not None:
            raise ModelError(
                Reason.MODEL_NOT_FOUND,
                f"{name} has no revision {revision!r}: only models of the hub have revisions.",
            )
        return loaded
    try:
        files = find_model(name, revision=revision, token=token, patterns=TOKENIZER_FILES)
    except ModelError as error:
        raise ModelError(error.reason, f"{error} {_also_looked_for(name)}") from error
    return _from_directory(files)


def _by_name(name: str) -> LoadedTokenizer | None:
    """A tokenizer that is neither in files nor on the hub."""
    own = _of_ones_own(name)
    if own is not None:
        return LoadedTokenizer(name, Loaded("own", own))
    # A hub name has a slash; importing tiktoken for it would be for nothing.
    if "/" in name or not find_spec("tiktoken"):
        return None
    from mmroute.text.formats.tiktoken_ranks import load_openai_encoding, openai_encoding

    encoding = openai_encoding(name)
    return None if encoding is None else LoadedTokenizer(name, load_openai_encoding(encoding))


def _from_file(name: str, path: Path) -> LoadedTokenizer:
    kind = kind_of_file(path)
    if kind is None:
        known = ", ".join(kind.value for kind in FileKind)
        raise ModelError(
            Reason.UNSUPPORTED_TOKENIZER,
            f"The content of {path} is none of these: {known}. If it is a model directory's, give "
            f"the directory: {path.parent}",
        )
    # A format looks for its file under that file's usual name, whatever it is called here.
    usual = _USUAL_NAMES.get(kind, path.name)
    files = ModelFiles(name=name, root=path.parent, renamed={usual: path})
    return _load(files, kind, usual, None, ())


def _from_directory(files: ModelFiles) -> LoadedTokenizer:
    family, doubts = _family(files)
    for name in _candidates(files, family):
        # What these are is checked where they are parsed, and they take long to parse.
        kind = _BY_NAME.get(name) or kind_of_file(files.path(name))
        if kind is not None:
            return _load(files, kind, name, family, doubts)
        raise malformed(
            f"{files.path(name)} is not what its name says; its content is of no known kind."
        )
    present = sorted(entry.name for entry in files.root.iterdir() if entry.is_file())
    raise ModelError(
        Reason.MISSING_FILE,
        f"{files.name} has no tokenizer: looked in {files.root} for {_LOOKED_FOR}. It has: "
        f"{', '.join(present[:_SHOWN]) or 'no files'}{', …' if len(present) > _SHOWN else ''}.",
    )


def _family(files: ModelFiles) -> tuple[FamilySpec | None, tuple[str, ...]]:
    """The model's family, if it is known, and notes on what is not certain about it."""
    try:
        return match_family(files), ()
    except ModelError as error:
        if error.reason == Reason.CONTRADICTORY_CONFIG:
            return None, (str(error),)
        if error.reason != Reason.UNKNOWN_FAMILY:
            raise
        return None, ()


def _candidates(files: ModelFiles, family: FamilySpec | None) -> Iterator[str]:
    """The files that may hold the tokenizer, the ones that an engine prefers first."""
    order = ["tokenizer.json", "tekken.json"]
    if family is not None and family.tokenizer.has_chat_encoder:
        order.reverse()
    yield from filter(files.has, order)
    yield from sorted((path.name for path in files.root.glob(_MISTRAL)), key=_version, reverse=True)
    yield from filter(files.has, ("tokenizer.model", "tiktoken.model"))
    names = sorted(path.name for path in files.root.glob("*.tiktoken"))
    if len(names) > 1:
        raise ModelError(
            Reason.MODEL_NOT_FOUND,
            f"{files.root} holds several vocabularies; give the path of one: {', '.join(names)}.",
        )
    yield from names
    if files.has("merges.txt") and files.has("vocab.json"):
        yield "vocab.json"
    yield from sorted(path.name for path in files.root.glob("*.gguf"))


def _version(name: str) -> tuple[int, str]:
    """By which Mistral's files are sorted; ``.v3m1`` is a 3."""
    number = re.match(r"\d+", name.removeprefix("tokenizer.model.v"))
    return (int(number[0]) if number else 0, name)


def _load(
    files: ModelFiles, kind: FileKind, name: str, family: FamilySpec | None, doubts: tuple[str, ...]
) -> LoadedTokenizer:
    loaded = _by_format(files, kind, name, family)
    loaded = replace(loaded, notes=(*doubts, *loaded.notes))
    configuration = set(files.names(TOKENIZER_CONFIGURATION)) - files.renamed.keys()
    decisive = [name, *["merges.txt"] * (kind == FileKind.VOCAB_JSON), *sorted(configuration)]
    return LoadedTokenizer(
        files.name, loaded, files={n: files.path(n) for n in decisive}, model_files=files
    )


def _by_format(files: ModelFiles, kind: FileKind, name: str, family: FamilySpec | None) -> Loaded:
    # Each format is imported only where it is loaded: some of their libraries are slow to import.
    path = files.path(name)
    match kind:
        case FileKind.TOKENIZER_JSON:
            spec = family.tokenizer if family else TokenizerSpec()
            return _tokenizer_json(files, spec.pipelines, spec.added(files))
        case FileKind.VOCAB_JSON:
            from mmroute.text.formats.vocab_merges import load_vocab_and_merges

            return load_vocab_and_merges(files)
        case FileKind.SENTENCEPIECE if not path.match("*.model.v*"):  # where its version stands
            from mmroute.text.formats.sentencepiece_model import load_sentencepiece

            return load_sentencepiece(files)
        case FileKind.TEKKEN | FileKind.SENTENCEPIECE:
            return _mistral_file(path, tekken=kind is FileKind.TEKKEN)
        case FileKind.TIKTOKEN:
            with needs_extra("formats", "tiktoken", f"{path} is a rank file of tiktoken. It"):
                from mmroute.text.formats.tiktoken_ranks import load_rank_file

            return load_rank_file(path, files)
        case FileKind.GGUF:
            raise ModelError(
                Reason.UNSUPPORTED_TOKENIZER,
                f"{path} is a GGUF file. vLLM and SGLang read no vocabulary from it: they use the "
                "tokenizer of the original model. Give that model's directory or name.",
            )


def _of_ones_own(name: str) -> Codec | None:
    """The tokenizer of an entry point or of ``module:Class``; None if the name is neither."""
    installed = importlib.metadata.entry_points(group=ENTRY_POINTS, name=name)
    point = next(iter(installed), None)
    if point is None:
        if not _OWN.fullmatch(name):
            return None
        point = importlib.metadata.EntryPoint(name, name, ENTRY_POINTS)
    target = point.value
    try:
        made: Any = point.load()()
    except Exception as error:  # code of others: whatever it raises
        raise ModelError(
            Reason.MODEL_NOT_FOUND, f"{target} could not be imported and called: {error!r}"
        ) from error
    missing = [part for part in ("encode", "decode") if not hasattr(made, part)]
    if missing:
        raise ModelError(
            Reason.UNSUPPORTED_TOKENIZER, f"{target} is no tokenizer: it has no {missing[0]}."
        )
    return OwnCodec(made)


def _also_looked_for(name: str) -> str:
    own = [point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS)]
    if find_spec("tiktoken"):
        import tiktoken  # only to word an error

        known = [*tiktoken.model.MODEL_TO_ENCODING, *tiktoken.list_encoding_names(), *own]
        near = did_you_mean(name, known, cutoff=0.7)
    else:
        near = f" (those need {install_command('formats')})"
    return (
        "Nor is it a file, module:Class, a tokenizer of the entry point group "
        f"{ENTRY_POINTS} ({', '.join(own) or 'none installed'}), or a model name of OpenAI's{near}."
    )


def _mistral_file(path: Path, *, tekken: bool) -> Loaded:
    """Load one of Mistral's tokenizer files, without an encoder of chats."""
    with needs_extra("mistral", "mistral_common", f"{path} is a tokenizer of Mistral's. It"):
        from mmroute.tokenizers.formats.mistral import MistralTokenizer, load_backend

    tokenizer = MistralTokenizer(load_backend(path, tekken=tekken))
    name = "tekken" if tekken else "mistral sentencepiece"
    return Loaded(name, tokenizer, pieces=pieces_of(tokenizer))


def _tokenizer_json(
    files: ModelFiles, pipelines: Mapping[str, str], adds: AddedTokens = NOTHING_ADDED
) -> Loaded:
    """Load a tokenizer.json as the engine does; if that is not known, as the file is written."""
    from mmroute.tokenizers.formats.tokenizer_json import build, built_class
    from mmroute.tokenizers.pipelines import PIPELINES

    notes = []
    try:
        pipeline = PIPELINES.get(built_class(files, pipelines))
    except ModelError as error:
        if error.reason != Reason.TOKENIZER_UNVERIFIED:
            raise
        notes.append(f"{error} These are the IDs of tokenizer.json as it is written.")
        pipeline = None
    tokenizer = build(files, pipeline, REFERENCE_ONLY, adds)
    return Loaded("tokenizer.json", tokenizer, tuple(notes), pieces=pieces_of(tokenizer))
