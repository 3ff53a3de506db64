"""The fields of requests in earlier releases of vLLM.

A release ignores fields that it does not know. Two differences are not covered: releases before
0.30 accept cache salts of any letters and length, and the sampling parameters of an answer are
always those of the newest release.

Source: the request schemas in the wheels of 0.13.0 to 0.33.0.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, TypeAlias

from mmroute.engine import find_engine
from mmroute.engines.vllm.profile import VLLM
from mmroute.errors import ModelError, Reason

Release: TypeAlias = tuple[int, int]
"""The first two numbers of a release: within these, no field changed."""

_OTHERWISE: Final[Mapping[str, Mapping[Release, Mapping[str, Any]]]] = {
    "/v1/chat/completions/render": {
        (0, 21): {"reasoning_effort": (Literal["none", "low", "medium", "high"] | None, None)},
        (0, 18): {"reasoning_effort": (Literal["low", "medium", "high"] | None, None)},
    },
}
"""Path -> release, the newest first -> fields that are of another type before it, with defaults."""


def differences(
    path: str, release: Release
) -> tuple[frozenset[str], frozenset[str], dict[str, Any]]:
    """The differences between the requests of a route in a release and in the newest one."""
    unknown, refused = set[str](), set[str]()
    for name, (first, *end) in _known().get(path, {}).items():
        if end and first <= release < end[0]:
            refused.add(name)
        elif release < first:
            unknown.add(name)
    changed: dict[str, Any] = {}
    for before, fields in _OTHERWISE.get(path, {}).items():
        if release < before:
            changed |= fields
    return frozenset(unknown), frozenset(refused), changed


@cache
def release_of(backend: str) -> Release:
    """The release that a backend such as ``vllm==0.28`` names."""
    engine = find_engine(backend).release
    if engine.name != VLLM.release.name:
        raise ModelError(
            Reason.UNKNOWN_BACKEND,
            f"The bodies of {engine.name}'s API are not covered. Give the fields that change its "
            "prompts to `Normalizer.normalize`.",
        )
    return _release(engine.version)


@cache
def _known() -> Mapping[str, Mapping[str, list[Release]]]:
    """Path -> field -> the first release that knows it, and the first that does not any more."""
    file = resources.files("mmroute.engines.vllm.bodies") / "request_fields.toml"
    return {
        path: {name: [_release(bound) for bound in bounds] for name, bounds in fields.items()}
        for path, fields in tomllib.loads(file.read_text()).items()
    }


def _release(version: str) -> Release:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
