"""The same token IDs, and items that the engine calls by other names."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from mmroute.answering.lines import request_of
from mmroute.answering.pipeline import answer
from mmroute.engines.vllm.identity import HASHERS
from mmroute.errors import InexactError
from mmroute.model.resolved import ResolvedModel
from mmroute.parity.cases import Case, Outcome, UndecidedError
from mmroute.parity.causes import Cause, Diagnosis
from mmroute.parity.oracles.pictures import with_pictures

__all__ = ["identities", "identities_of", "named_otherwise", "spellings_of"]

_OF_HUB = "models--"
_MODEL = "--model "


def identities_of(model: ResolvedModel, case: Case) -> tuple[str, ...] | None:
    """What the items of a chat are called, if oracles get the pictures; None if nobody can say."""
    request = dict(case.request)
    try:
        request["messages"] = with_pictures(request["messages"], request.pop("images", None))
        named = answer(model, request_of(request)).identities
    except (InexactError, UndecidedError, KeyError):
        return None
    found = tuple([identity.value for identity in named if identity is not None])
    return found if len(found) == len(named) else None


def identities(
    model: ResolvedModel, case: Case, ours: Outcome, theirs: Outcome, told: str
) -> Diagnosis:
    """Which setting gives the names that the engine has.

    Args:
        model: who gave our answer.
        case: the request.
        ours: our answer.
        theirs: the oracle's, with other identities.
        told: the engine's model string as its server tells it; empty if it does not.
    """
    strings = tuple(dict.fromkeys(filter(None, (told, *spellings_of(model)))))
    fitting = (
        setting
        for setting, other in named_otherwise(model, strings)
        if identities_of(other, case) == theirs.identities
    )
    found = next(fitting, "")
    if found:
        remedy = f"They are equal with {found} in --engine-args, in the place of any --model-id."
    else:
        remedy = (
            "None of the strings that were tried gives the engine's identities: "
            f"{', '.join(strings)}. The server tells {repr(told) if told else 'no string'}. Which "
            "string stands behind `vllm serve` there, and which version is it?"
        )
    return Diagnosis(
        Cause.MODEL_STRING if found.startswith(_MODEL) else Cause.IDENTITIES_ONLY,
        0 if ours.token_ids is None else len(ours.token_ids),
        f"All IDs and ranges are equal, but items have other identities, and so all blocks with or "
        f"behind them other hashes. mmroute took the engine's model string to be "
        f"{model.model_id!r}. {remedy}",
        (found,) if found else (),
    )


def spellings_of(model: ResolvedModel) -> Iterator[str]:
    """Model strings by which an engine may have been started with a model's files, own first."""
    path = Path(model.name)
    bare = model.name.rstrip("/")
    yield from (model.model_id, model.name, bare, f"{bare}/", path.name, f"./{path.name}")
    if path.is_dir():
        yield from (str(path.absolute()), str(path.resolve()), f"{path.resolve()}/")
    for part in path.parts:
        if part.startswith(_OF_HUB):  # a snapshot in the hub's cache
            yield part.removeprefix(_OF_HUB).replace("--", "/")


def named_otherwise(
    model: ResolvedModel, strings: Iterable[str]
) -> Iterator[tuple[str, ResolvedModel]]:
    """The model under other model strings, each with all of vLLM's hash algorithms for images.

    Yields:
        The setting by which an engine is started so, and the model.
    """
    for string in strings:
        renamed = replace(model, model_id=string)
        before = ""
        if string != model.model_id:
            before = f"{_MODEL}{shlex.quote(string)}"
            yield before, renamed
        for algorithm in HASHERS:
            identify = partial(model.engine.identify, algorithm=algorithm)
            hashed = replace(renamed, engine=replace(model.engine, identify=identify))
            yield f"{before} --mm-hasher-algorithm {algorithm}".lstrip(), hashed
