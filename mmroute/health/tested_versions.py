"""The libraries on whose versions token IDs depend, and the versions that were tested."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import Modality

TESTED: Final[Mapping[str, tuple[str, ...]]] = {
    "mmroute": ("0.1.0",),
    "fastokens": ("0.3.5",),
    "jinja2": ("3.1.6",),
    "mistral-common": ("1.13.1",),
    "pillow": ("13.0.0",),
    "tokenizers": ("0.23.3",),
}
"""The tested versions by distribution. A family spec's ``[checked]`` takes precedence."""

UNKNOWN: Final = "unknown"
"""Stands in place of a version that is not recorded."""


@cache
def version_of(distribution: str) -> str:
    """The installed version of a distribution; ``unknown`` if it is not recorded."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


def deciding_versions(model: ResolvedModel) -> dict[str, str]:
    """The installed versions of the libraries on which this model's token IDs depend."""
    hf_format = model.family.tokenizer.format == "huggingface"
    names = ["mmroute", *(("tokenizers", "jinja2") if hf_format else ("mistral-common",))]
    if Modality.IMAGE in model.media:
        names.append("pillow")
    if hf_format and version_of("fastokens") != UNKNOWN:
        names.append("fastokens")
    return {name: version_of(name) for name in names}


def untested(model: ResolvedModel, installed: Mapping[str, str]) -> Iterator[str]:
    """Sentences about installed libraries, and the engine matched, whose version was not tested."""
    checked = model.family.checked
    for name, version in installed.items():
        tested = checked.get(name, TESTED[name])
        if version not in tested:
            yield f"{name} {version} is installed; tested was {' and '.join(tested)}"
    engine = model.engine.release
    versions = checked.get(engine.name, ())
    if engine.version not in versions:
        known = f"on {' and '.join(versions)} of it" if versions else "on no version of it"
        yield (
            f"the answers are those of {engine.name} {engine.version}; the family "
            f"{model.family.family} was checked {known}"
        )
