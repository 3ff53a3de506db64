"""Which files a bundle holds, how they may be named, and how large they may be."""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from mmroute.bundle.faults import BundleError, Fault
from mmroute.errors import ModelError, Reason, quoted
from mmroute.model_directory import EMBEDDED_MODEL, MODEL_FILES, TOKENIZER_FILES, ModelFiles

BUNDLE_PATTERNS: Final = ("*.tiktoken", "*.jinja", "*.model", "tokenizer.model.v*")
"""Further files, by pattern: as the engines' servers have them, and Mistral's vocabularies."""

BUNDLE_FILES: Final = tuple(dict.fromkeys((
    *(name for name in MODEL_FILES if "/" not in name and "*" not in name),
    "merges.txt", "tiktoken.model", "tokenizer.model", "video_preprocessor_config.json",
    "vocab.json",
)))  # fmt: skip
"""What a server sends and a client takes, by name.

That is what mmroute reads, and what the engines' servers send (smg-grpc-servicer 0.14.1
``tokenizer_bundle.py``), which leave out params.json, tekken.json and added_tokens.json.
"""

SOURCE_FILES: Final = tuple(
    dict.fromkeys((*BUNDLE_FILES, *BUNDLE_PATTERNS, *MODEL_FILES, *TOKENIZER_FILES))
)
"""What is fetched of a hub name, some by pattern: all that a bundle or a loader could take.

Fewer, and what a hub cache happens to hold would decide what is served.
"""

_NESTED: Final = tuple(name for name in MODEL_FILES if "/" in name)
_LONGEST_NAME: Final = 128
_NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-+ ")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a worker may send. The first three are those of smg's client.

    Attributes:
        stream_bytes: of all chunks of one call, counted while they come.
        files: in one bundle.
        unpacked_bytes: of all files, counted while they are inflated.
        ratio: of a file to its deflated form. The highest seen of a large one is 28, of Gemma 3's
            tokenizer_config.json.
    """

    stream_bytes: int = 200 << 20
    files: int = 50
    unpacked_bytes: int = 500 << 20
    ratio: int = 200


def files_of(model: ModelFiles) -> dict[str, Path]:
    """The files of a model that go into its bundle, by name, sorted.

    Raises:
        ModelError: `missing_file` if there is none of them.
    """
    matched = (path for pattern in BUNDLE_PATTERNS for path in model.root.glob(pattern))
    names = {*BUNDLE_FILES, *(path.name for path in matched)}
    found = {name: model.path(name) for name in sorted(names) if model.has(name)}
    if not found:
        raise ModelError(
            Reason.MISSING_FILE, f"{model.root} has none of the files that bundles hold."
        )
    return found


def check_flat(model: ModelFiles) -> None:
    """Refuse a model with files elsewhere than in its directory: a bundle is another one then.

    Raises:
        ModelError: `invalid_config_field`; `model_not_found` for a model that is part of a package.
    """
    if model.name == EMBEDDED_MODEL:
        raise ModelError(
            Reason.MODEL_NOT_FOUND,
            f"{model.name} is part of a package and has no directory; nobody could load what a "
            "bundle of it holds. Serve a model directory.",
        )
    nested = sorted(str(path) for pattern in _NESTED for path in model.root.glob(pattern))
    if nested:
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{model.name}: a bundle has no directories, so {', '.join(nested)} cannot be in it. "
            "Give a directory with one chat template.",
        )


def check_names(names: Iterable[str], limits: Limits) -> None:
    """Refuse names that no bundle of tokenizer files has.

    Raises:
        BundleError: the message has the name.
    """
    seen: dict[str, str] = {}
    for count, name in enumerate(names, 1):
        if count > limits.files:
            raise BundleError(
                Fault.TOO_MANY_FILES, f"The bundle has more than {limits.files} files."
            )
        fault = _fault_of_name(name)
        if fault is not None:
            raise BundleError(fault, f"The bundle has a file named {quoted(name)}: {fault}.")
        earlier = seen.setdefault(name.casefold(), name)
        if len(seen) < count:
            raise BundleError(
                Fault.DUPLICATE_NAME if earlier == name else Fault.CASE_COLLISION,
                f"The bundle has the files {quoted(earlier)} and {quoted(name)}.",
            )
    if not seen:
        raise BundleError(Fault.NO_FILES, "The bundle has no files.")


def _fault_of_name(name: str) -> Fault | None:
    unsafe = {
        Fault.NAME_EMPTY: not name,
        Fault.NAME_TOO_LONG: len(name) > _LONGEST_NAME,
        Fault.CONTROL_CHARACTER: any(letter < " " or letter == "\x7f" for letter in name),
        Fault.NAME_NOT_ASCII: not name.isascii(),
        Fault.BACKSLASH: "\\" in name,
        Fault.DRIVE_PREFIX: ":" in name,
        Fault.ABSOLUTE_PATH: name.startswith("/"),
        Fault.TRAVERSAL: any(part in ("..", ".") for part in name.split("/")),
        Fault.NESTED_DIRECTORY: "/" in name,
        Fault.NOT_A_TOKENIZER_FILE: not _is_tokenizer_file(name),
    }
    return next((fault for fault, is_so in unsafe.items() if is_so), None)


def _is_tokenizer_file(name: str) -> bool:
    if name in BUNDLE_FILES:
        return True
    plain = not name.startswith(".") and _NAME_CHARACTERS.issuperset(name)
    return plain and any(fnmatchcase(name, pattern) for pattern in BUNDLE_PATTERNS)
