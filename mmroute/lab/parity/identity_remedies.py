"""Finds the settings under which items have the engine's identities."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mmroute.answering.pipeline import answer
from mmroute.engines.vllm.identity import HASHERS
from mmroute.engines.vllm.versions import ERAS
from mmroute.errors import InexactError
from mmroute.lab.parity.cases import Case, UndecidedError
from mmroute.lab.parity.causes import Cause, Remedy
from mmroute.lab.parity.oracles.pictures import with_pictures
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import find_model
from mmroute.requests.lines import request_of

_OF_HUB = "models--"
_MODEL = "--model "


def identities_of(model: ResolvedModel, case: Case) -> tuple[str, ...] | None:
    """The identities of a chat's items with the pictures that oracles get; None if not known."""
    request = dict(case.request)
    try:
        request["messages"] = with_pictures(request["messages"], request.pop("images", None))
        named = answer(model, request_of(request)).identities
    except (InexactError, UndecidedError, KeyError):
        return None
    found = tuple([identity.value for identity in named if identity is not None])
    return found if len(found) == len(named) else None


def identity_remedy(
    model: ResolvedModel, fits: Callable[[ResolvedModel], bool], engine_model: str = ""
) -> Remedy:
    """The setting that gives the items the engine's identities."""
    strings = tuple(dict.fromkeys(filter(None, (engine_model, *_spellings_of(model)))))
    used = f"mmroute used the model string {model.model_id!r}"
    for setting, other in _identified_otherwise(model, strings):
        if fits(other):
            return Remedy(
                Cause.MODEL_STRING if setting.startswith(_MODEL) else Cause.IDENTITIES_ONLY,
                f"Items have other identities. {used}; they are equal with {setting}.",
                setting,
            )
    return Remedy(
        Cause.IDENTITIES_ONLY,
        f"Items have other identities. {used}; none of the strings that were tried gives them: "
        f"{', '.join(strings)}. The server gives "
        f"{repr(engine_model) if engine_model else 'no string'}. Check the string after "
        "`vllm serve` and the version; --engine URL asks the engine for both.",
    )


def _identified_otherwise(
    model: ResolvedModel, strings: Iterable[str]
) -> Iterator[tuple[str, ResolvedModel]]:
    """The model under other settings of identities."""
    yield from _named_otherwise(model, strings)
    lora_first = not model.engine.naming.lora_first
    yield "--enable-tower-connector-lora", _naming(model, lora_first=lora_first)
    for era in ERAS[1:]:
        yield f"--backend {era.release.backend}", _naming(model, identify=era.naming.identify)


def _naming(model: ResolvedModel, **changed: Any) -> ResolvedModel:
    """The model of an engine that names items otherwise."""
    naming = replace(model.engine.naming, **changed)
    return replace(model, engine=replace(model.engine, naming=naming))


def _spellings_of(model: ResolvedModel) -> Iterator[str]:
    """Model strings by which an engine may have been started with a model's files, own first."""
    path = Path(model.name)
    bare = model.name.rstrip("/")
    named = (model.model_id, model.name, bare, f"{bare}/", path.name, f"./{path.name}")
    yield from named
    if path.is_dir():
        yield from (str(path.absolute()), str(path.resolve()), f"{path.resolve()}/")
    for part in path.parts:
        if part.startswith(_OF_HUB):  # a snapshot in the hub's cache
            yield part.removeprefix(_OF_HUB).replace("--", "/")
    # The hub knows a name in any letter case, and an identity does not.
    yield from (*model.settings.served_names, "/".join(path.parts[-2:]), _published(model))
    yield from map(str.lower, named)


def _published(model: ResolvedModel) -> str:
    """The name by which the files were published, where they have it; else empty."""
    if not Path(model.name).is_dir():
        return ""
    files = find_model(model.name)
    found = files.object("config.json").get("_name_or_path") if files.has("config.json") else ""
    return found if isinstance(found, str) else ""


def _named_otherwise(
    model: ResolvedModel, strings: Iterable[str]
) -> Iterator[tuple[str, ResolvedModel]]:
    """The model under other model strings, each with all of vLLM's hash algorithms for images."""
    for string in strings:
        renamed = replace(model, model_id=string)
        before = ""
        if string != model.model_id:
            before = f"{_MODEL}{shlex.quote(string)}"
            yield before, renamed
        for algorithm in HASHERS:
            identify = partial(model.engine.naming.identify, algorithm=algorithm)
            hashed = _naming(renamed, identify=identify)
            yield f"{before} --mm-hasher-algorithm {algorithm}".lstrip(), hashed
