"""The files of a bundle, their limits, and the errors by which a bundle is refused."""

from __future__ import annotations

import string
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from mmroute.errors import MmrouteError, ModelError, Reason, quoted
from mmroute.model_directory import EMBEDDED_MODEL, MODEL_FILES, TOKENIZER_FILES, ModelFiles

BUNDLE_PATTERNS: Final = ("*.tiktoken", "*.jinja", "*.model", "tokenizer.model.v*")
"""Patterns of further files: those that the engines' servers send, and Mistral's vocabularies."""

BUNDLE_FILES: Final = tuple(dict.fromkeys((
    *(name for name in MODEL_FILES if "/" not in name and "*" not in name),
    "merges.txt", "tiktoken.model", "tokenizer.model", "video_preprocessor_config.json",
    "vocab.json",
)))  # fmt: skip
"""The names of files that a server sends and a client accepts.

They are the files that mmroute reads, and those that the engines' servers send (smg-grpc-servicer
0.14.1 ``tokenizer_bundle.py``). The latter leave out params.json, tekken.json and
added_tokens.json.
"""

# Fetched from the hub before a bundle is served. With fewer, the content of the hub's local cache
# would decide which files are served.
SOURCE_FILES: Final = tuple(
    dict.fromkeys((*BUNDLE_FILES, *BUNDLE_PATTERNS, *MODEL_FILES, *TOKENIZER_FILES))
)
_NESTED: Final = tuple(name for name in MODEL_FILES if "/" in name)
_LONGEST_NAME: Final = 128
MOST_FILES: Final = 50  # in one bundle, as in smg's client
_NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-+ ")


class BundleError(MmrouteError):
    """A worker's bundle could not be fetched, or is refused.

    Attributes:
        reason: `bundle_unavailable` for a call that failed, and may succeed when it is made again;
            `bundle_refused` for what the worker sent.
    """


def refused(why: str) -> BundleError:
    """The error for what a worker sent."""
    return BundleError(Reason.BUNDLE_REFUSED, f"The bundle is refused: {why}.")


def files_of(model: ModelFiles) -> dict[str, Path]:
    """The files of a model that go into its bundle, by name, sorted."""
    if model.name == EMBEDDED_MODEL:
        raise ModelError(
            Reason.MODEL_NOT_FOUND,
            f"{model.name} is part of a package and has no directory. Serve a model directory.",
        )
    if nested := sorted(str(path) for pattern in _NESTED for path in model.root.glob(pattern)):
        raise ModelError(
            Reason.INVALID_CONFIG_FIELD,
            f"{model.name}: a bundle has no directories, so {', '.join(nested)} cannot be in it. "
            "Give a directory with one chat template.",
        )
    matched = (path for pattern in BUNDLE_PATTERNS for path in model.root.glob(pattern))
    names = {*BUNDLE_FILES, *(path.name for path in matched)}
    paths = {name: model.path(name) for name in sorted(names) if model.has(name)}
    if not paths:
        raise ModelError(
            Reason.MISSING_FILE, f"{model.root} has none of the files that bundles hold."
        )
    check_names(paths)
    return paths


def check_names(names: Iterable[str]) -> None:
    """Refuse names that no bundle of tokenizer files has."""
    seen = set[str]()
    for name in names:
        if not _is_tokenizer_file(name) or name.casefold() in seen:
            raise refused(f"{quoted(name)} is no tokenizer file, or there are two of this name")
        seen.add(name.casefold())
        if len(seen) > MOST_FILES:
            raise refused(f"it has more than {MOST_FILES} files")
    if not seen:
        raise refused("it has no files")


def _is_tokenizer_file(name: str) -> bool:
    """Whether a name is known, or matches a pattern and is neither a path nor hidden."""
    if name in BUNDLE_FILES:
        return True
    plain = len(name) <= _LONGEST_NAME and _NAME_CHARACTERS.issuperset(name)
    return plain and name[:1] != "." and any(fnmatchcase(name, p) for p in BUNDLE_PATTERNS)
