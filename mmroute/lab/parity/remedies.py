"""Finds the settings under which mmroute has the oracle's token IDs, by trying them."""

from __future__ import annotations

import functools
import itertools
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from mmroute.answering.pipeline import answer, geometry_of, prepare
from mmroute.answering.routing import Routing
from mmroute.engine import PYTHON
from mmroute.engines.vllm.settings import VllmSettings, as_vllm
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.errors import InexactError, MmrouteError
from mmroute.lab.parity.causes import (
    CAN_BE_TAKEN_OUT,
    Cause,
    Remedy,
    merged,
    taken_out,
    text_of,
    without,
)
from mmroute.lab.parity.processor_arguments import processor_arguments
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import ModelFiles, find_model
from mmroute.requests.items import ImageSize, Modality
from mmroute.requests.request import Request
from mmroute.reuse.fast_paths import REFERENCE_ONLY
from mmroute.token_ids import TokenIds

_TEMPLATE_FIELDS: Final = ("chat_template.json", "processor_config.json", "tokenizer_config.json")
_TEMPLATE_SWITCHES: Final = ({"enable_thinking": False}, {"enable_thinking": True},
                             {"thinking": False}, {"thinking": True})  # fmt: skip
_MAX_COUNTS: Final = 12
_SHOWN: Final = 60


def token_remedy(
    model: ResolvedModel,
    request: Request,
    routing: Routing,
    theirs: TokenIds,
    *,
    arguments_found: list[Mapping[str, Any]],
    fits: Callable[[Routing], bool] | None = None,
    frontend_known: bool = False,
) -> Remedy:
    """The cause by which the oracle has other token IDs."""
    whole = fits is None
    fits = fits or functools.partial(_has_ids, theirs)
    others = itertools.chain(_with_less(model, request), _rendered_otherwise(model, request))
    if not frontend_known:
        others = itertools.chain(_behind_other_frontend(model, request), others)
    for remedy, other_model, other_request in others:
        if fits(answer(other_model, other_request)):
            return remedy
    tried = _processor_arguments(model, request, routing, theirs)
    # The arguments are tried as those with which the engine was started, which need no trust. Its
    # encoder cache is large enough for its own counts.
    settings = replace(as_vllm(model.settings), trust_request_mm_kwargs=True)
    cache = max(model.encoder_cache, len(theirs))
    model = replace(model, engine=model.engine.under(settings), encoder_cache=cache)
    for arguments in (*arguments_found, *tried):
        changed = request._replace(mm_processor_kwargs={**request.mm_processor_kwargs, **arguments})
        if fits(answer(model, changed)):
            if arguments not in arguments_found:
                arguments_found.append(arguments)
            text = json.dumps(arguments)
            return Remedy(
                Cause.PROCESSOR_ARGUMENT,
                f"Images have other counts, which {text} as arguments of the processor give.",
                merged("mm-processor-kwargs", settings.mm_processor_kwargs, arguments),
            )
    return _unexplained(model, routing, theirs, whole=whole)


def _has_ids(theirs: TokenIds, routing: Routing) -> bool:
    return routing.exact and np.array_equal(routing.token_ids, theirs)


def _behind_other_frontend(
    model: ResolvedModel, request: Request
) -> Iterator[tuple[Remedy, ResolvedModel, Request]]:
    rust = int(model.engine.release.frontend == PYTHON)
    own = as_vllm(model.settings)
    kind = RustSettings if rust else VllmSettings
    settings = kind(**{field.name: getattr(own, field.name) for field in fields(own)})
    behind = _resolved(model.name, model.engine.release.backend, model.model_id, settings)
    if behind is not None:
        why = f"The oracle is the engine's {behind.engine.release.frontend} frontend."
        setting = f"VLLM_USE_RUST_FRONTEND={rust}"
        yield Remedy(Cause.FRONTEND, why, setting), behind, request


def _with_less(
    model: ResolvedModel, request: Request
) -> Iterator[tuple[Remedy, ResolvedModel, Request]]:
    """The model of an engine that lacks an option that was given."""
    for name in CAN_BE_TAKEN_OUT:
        fewer = without(as_vllm(model.settings), name)
        if fewer == model.settings or not name.startswith("-"):
            continue
        other = _resolved(model.name, model.engine.release.backend, model.model_id, fewer)
        if other is not None:
            why = f"The oracle has no {name}, which mmroute was given."
            yield Remedy(Cause.TEMPLATE, why, taken_out(name)), other, request


def _rendered_otherwise(
    model: ResolvedModel, request: Request
) -> Iterator[tuple[Remedy, ResolvedModel, Request]]:
    if request.messages is None:
        special = not request.add_special_tokens
        why = f"The oracle has the prompt with add_special_tokens {str(special).lower()}."
        yield Remedy(Cause.SPECIAL_TOKENS, why), model, request._replace(add_special_tokens=special)
        return
    for form in ("openai", "string"):
        why = f"The oracle gives its chat template contents in the form {form!r}."
        other = replace(model, chat=model.chat.with_content_format(form))
        remedy = Remedy(Cause.TEMPLATE, why, f"--chat-template-content-format {form}")
        yield remedy, other, request
    for source, origin in _templates_of(model):
        why = f"The oracle renders the chat template of {origin}."
        file = origin if origin.endswith(".jinja") else ""
        setting = f"--chat-template {shlex.quote(str(Path(model.name) / file))}" if file else ""
        try:
            other = replace(model, chat=model.chat.with_template(source, origin))
        except MmrouteError:
            continue
        yield Remedy(Cause.TEMPLATE, why, setting), other, request
    for switch in _TEMPLATE_SWITCHES:
        text = json.dumps(switch)
        why = f"The oracle renders its chat template with {text}."
        known = as_vllm(model.settings).chat_template_kwargs
        setting = merged("default-chat-template-kwargs", known, switch)
        kwargs = {**request.chat_template_kwargs, **switch}
        switched = request._replace(chat_template_kwargs=kwargs)
        yield Remedy(Cause.TEMPLATE, why, setting), model, switched


@functools.lru_cache(maxsize=4)
def _resolved(
    name: str, backend: str, model_id: str, settings: VllmSettings
) -> ResolvedModel | None:
    """The model of an engine with other settings; None if that does not load it."""
    try:
        return resolve_model(
            name,
            backend=backend,
            model_id=model_id,
            fast_paths=REFERENCE_ONLY,
            engine_settings=settings,
        )
    except MmrouteError:
        return None


def _templates_of(model: ResolvedModel) -> Iterator[tuple[str, str]]:
    """All chat templates, those that were loaded and the others in the directory, by origin."""
    yield from ((each.source, each.origin) for each in (model.chat.templates or {}).values())
    # The files of a hub name would have to be fetched again, so only loaded templates are used.
    if not Path(model.name).is_dir():
        return
    yield from _sources(find_model(model.name))


def _sources(files: ModelFiles) -> Iterator[tuple[str, str]]:
    for name in files.names():
        if name.endswith(".jinja"):
            yield files.text(name), name
    for name in _TEMPLATE_FIELDS:
        found = files.object(name).get("chat_template") if files.has(name) else None
        if isinstance(found, str):
            yield found, f"{name}:chat_template"


def _processor_arguments(
    model: ResolvedModel, request: Request, routing: Routing, theirs: TokenIds
) -> Iterator[Mapping[str, Any]]:
    """Arguments with which all images together have as many tokens as in the oracle."""
    try:
        prepared = prepare(model, request)
        found = [item.size for item in prepared.items.get(Modality.IMAGE, ())]
        sizes = tuple(ImageSize(s.width, s.height) for s in found if isinstance(s, ImageSize))
        if not sizes:
            return
        geometry = geometry_of(model, request, Modality.IMAGE)
        fills = _fills(routing)
        wanted = int(np.isin(theirs, fills).sum())
        wanted -= int(np.isin(routing.token_ids, fills).sum()) - sum(
            placed.length for placed in routing.placeholders
        )
        yield from itertools.islice(
            processor_arguments(geometry, sizes, model.context, wanted), _MAX_COUNTS
        )
    except InexactError:
        return


def _fills(routing: Routing) -> TokenIds:
    """The token IDs of which the replacements of images consist."""
    pieces = [routing.token_ids[p.offset : p.offset + p.length] for p in routing.placeholders]
    found: TokenIds = np.unique(np.concatenate(pieces)) if pieces else np.zeros(0, np.uint32)
    return found


def _unexplained(
    model: ResolvedModel, routing: Routing, theirs: TokenIds, *, whole: bool
) -> Remedy:
    fills = _fills(routing)
    ours = routing.token_ids[~np.isin(routing.token_ids, fills)]
    text = theirs[~np.isin(theirs, fills)]
    common = max(len(ours), len(text)) if whole else min(len(ours), len(text))
    if len(fills) and np.array_equal(ours[:common], text[:common]):
        return Remedy(
            Cause.WRONG_COUNT,
            f"mmroute has {len(routing.token_ids)} token IDs and the oracle {len(theirs)}. The "
            "text is the same, and no processor argument that was tried gives the images' counts. "
            "Check the engine's --mm-processor-kwargs and its preprocessor files.",
        )
    shown = (text_of(model.tokenizer, text) or "")[:_SHOWN]
    return Remedy(
        Cause.OTHER,
        f"mmroute has {len(routing.token_ids)} token IDs and the oracle {len(theirs)}, whose text "
        f"begins {shown!r}. Check the engine's --chat-template and its files of the model.",
    )
