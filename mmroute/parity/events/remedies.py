"""Settings under which a prediction is what the engine announced, found by trying them."""

from __future__ import annotations

import json
import shlex
from ast import literal_eval
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mmroute.answering.pipeline import answer, geometry_of, prepare
from mmroute.answering.routing import Routing
from mmroute.engines.vllm.versions import ERAS
from mmroute.errors import InexactError
from mmroute.geometry import TokenIds
from mmroute.model.resolved import ResolvedModel
from mmroute.parity.alternatives import alternatives
from mmroute.parity.causes import Cause, text_of
from mmroute.parity.events.chains import Chain
from mmroute.parity.identity_causes import named_otherwise, spellings_of
from mmroute.parity.oracles.pictures import parts_of
from mmroute.parity.text_causes import templates_of
from mmroute.requests.items import ImageSize, Modality
from mmroute.requests.request import Request

__all__ = ["Remedy", "key_remedies", "token_remedies"]

_TEMPLATE_SWITCHES: Final = ({"enable_thinking": False}, {"enable_thinking": True},
                             {"thinking": False}, {"thinking": True})  # fmt: skip
_MOST_COUNTS: Final = 12
_LIMITS: Final = ("max_", "min_")
_SHOWN: Final = 60


class Remedy(NamedTuple):
    """A cause of a difference, and what would end it.

    Attributes:
        cause: by name.
        explanation: for the person who sets it right.
        setting: of the engine's command line; empty if it is none of its options, or not known.
    """

    cause: Cause
    explanation: str
    setting: str = ""


def token_remedies(
    model: ResolvedModel,
    request: Request,
    routing: Routing,
    chain: Chain,
    arguments_found: list[Mapping[str, Any]],
) -> Iterator[Remedy]:
    """Why the engine has other token IDs.

    Args:
        model: that predicted.
        request: of the prompt.
        routing: what was predicted.
        chain: what the engine announced.
        arguments_found: of the processor, by other requests: they are tried first, and one that is
            found is added.
    """
    for remedy, other_model, other_request in _rendered_otherwise(model, request):
        if _fits(answer(other_model, other_request), chain):
            yield remedy
            return
    tried = _processor_arguments(model, request, routing, chain)
    for arguments in (*arguments_found, *tried):
        changed = request._replace(mm_processor_kwargs={**request.mm_processor_kwargs, **arguments})
        if _fits(answer(model, changed), chain):
            if arguments not in arguments_found:
                arguments_found.append(arguments)
            text = json.dumps(arguments)
            yield Remedy(
                Cause.PROCESSOR_ARGUMENT,
                f"Images have other counts, which {text} as arguments of the processor give.",
                f"--mm-processor-kwargs {shlex.quote(text)}",
            )
            return
    yield _unexplained(model, request, routing, chain)


def key_remedies(
    model: ResolvedModel, request: Request, routing: Routing, chain: Chain
) -> Iterator[Remedy]:
    """Why the engine's hashes cover other things beside the tokens."""
    names, salts = _items_and_salts(chain)
    lora = None if routing.lora is None else routing.lora.name
    if chain.lora_name != lora:
        yield Remedy(
            Cause.LORA,
            f"The engine answered with {_adapter(chain.lora_name)}, and mmroute was asked with "
            f"{_adapter(lora)}: the request's `lora` says which one, with its path.",
        )
    if salts != ([routing.cache_salt] if routing.cache_salt else []):
        yield Remedy(
            Cause.CACHE_SALT,
            f"The engine's cache salt is {salts}, and that of the request {routing.cache_salt!r}.",
        )
    ours = [identity.value for identity in routing.identities if identity is not None]
    # The last items of a prompt may stand behind its last full block.
    if names == ours[: len(names)]:
        return
    for setting, other in _identified_otherwise(model):
        found = answer(other, request)
        theirs = [i.value for i in found.identities if i is not None]
        if names == theirs[: len(names)]:
            is_string = setting.startswith("--model ")
            yield Remedy(
                Cause.MODEL_STRING if is_string else Cause.IDENTITIES_ONLY,
                "Items have other identities. The engine's model string was taken to be "
                f"{model.model_id!r}; they are equal with {setting}.",
                setting,
            )
            return
    yield Remedy(
        Cause.MODEL_STRING,
        "Items have other identities, which no spelling of the model that was tried gives. The "
        f"engine's model string was taken to be {model.model_id!r}: which one stands behind "
        "`vllm serve`? --engine URL asks it.",
    )


def _fits(routing: Routing, chain: Chain) -> bool:
    """Whether all full blocks of a prompt are the announced ones; behind them may be an answer."""
    if not routing.exact:
        return False
    length = len(routing.token_ids) // chain.block_size * chain.block_size
    ours: TokenIds = routing.token_ids[:length]
    return length > 0 and np.array_equal(ours, chain.token_ids[:length])


def _rendered_otherwise(
    model: ResolvedModel, request: Request
) -> Iterator[tuple[Remedy, ResolvedModel, Request]]:
    if request.messages is None:
        special = not request.add_special_tokens
        why = f"The engine renders the prompt with add_special_tokens {str(special).lower()}."
        yield Remedy(Cause.OTHER, why), model, request._replace(add_special_tokens=special)
        return
    for template in templates_of(model):
        why = f"The engine renders the chat template of {template.origin}."
        file = template.origin if template.origin.endswith(".jinja") else ""
        setting = f"--chat-template {shlex.quote(str(Path(model.name) / file))}" if file else ""
        other = replace(model, chat=model.chat.with_template(template))
        yield Remedy(Cause.TEMPLATE, why, setting), other, request
    for form in ("openai", "string"):
        why = f"The engine gives its chat template contents in the form {form!r}."
        other = replace(model, chat=model.chat.with_content_format(form))
        remedy = Remedy(Cause.TEMPLATE, why, f"--chat-template-content-format {form}")
        yield remedy, other, request
    for switch in _TEMPLATE_SWITCHES:
        text = json.dumps(switch)
        why = f"The engine renders its chat template with {text}."
        setting = f"--default-chat-template-kwargs {shlex.quote(text)}"
        kwargs = {**request.chat_template_kwargs, **switch}
        switched = request._replace(chat_template_kwargs=kwargs)
        yield Remedy(Cause.TEMPLATE, why, setting), model, switched


def _processor_arguments(
    model: ResolvedModel, request: Request, routing: Routing, chain: Chain
) -> Iterator[Mapping[str, Any]]:
    """Arguments that give all images together as many tokens as the engine has."""
    try:
        prepared = prepare(model, request)
        found = [item.size for item in prepared.items.get(Modality.IMAGE, ())]
        sizes = tuple(ImageSize(s.width, s.height) for s in found if isinstance(s, ImageSize))
        if not sizes:
            return
        geometry = geometry_of(model, request, Modality.IMAGE)
        fills = _fills(routing)
        wanted = int(np.isin(chain.token_ids, fills).sum())
        wanted -= int(np.isin(routing.token_ids, fills).sum()) - sum(
            placed.length for placed in routing.placeholders
        )
        others = islice(alternatives(geometry, sizes, model.context, wanted), _MOST_COUNTS)
        found_by = [other.name.partition("=") for other in others if other.sizes is None]
        # Limits are what operators set.
        for name, _, value in sorted(found_by, key=lambda by: not by[0].startswith(_LIMITS)):
            yield {name: literal_eval(value)}
    except (InexactError, ValueError):
        return


def _fills(routing: Routing) -> TokenIds:
    """The IDs that stand for images."""
    pieces = [routing.token_ids[p.offset : p.offset + p.length] for p in routing.placeholders]
    found: TokenIds = np.unique(np.concatenate(pieces)) if pieces else np.zeros(0, np.uint32)
    return found


def _unexplained(model: ResolvedModel, request: Request, routing: Routing, chain: Chain) -> Remedy:
    fills = _fills(routing)
    length = min(len(routing.token_ids), len(chain.token_ids))
    ours = routing.token_ids[~np.isin(routing.token_ids, fills)]
    theirs = chain.token_ids[~np.isin(chain.token_ids, fills)]
    common = min(len(ours), len(theirs))
    if len(fills) and np.array_equal(ours[:common], theirs[:common]):
        return Remedy(
            Cause.PROCESSOR_ARGUMENT,
            "The text is the same and images have other counts, which no argument that was tried "
            "gives. Has the engine --mm-processor-kwargs, or other preprocessor files?",
        )
    text = text_of(model.tokenizer, theirs) or ""
    texts = (str(part.get("text", "")).strip() for part in parts_of(request.messages))
    said = next(filter(None, texts), None)
    if said is not None and said[:_SHOWN] in text:
        return Remedy(
            Cause.TEMPLATE,
            "The engine renders the same messages by another chat template, which is none of the "
            f"model's own: which --chat-template has it? Its prompt begins {text[:_SHOWN]!r}.",
        )
    return Remedy(
        Cause.OTHER,
        f"The engine has other token IDs, for which no cause was found; {length} of them were "
        "compared. Does it serve other files of the model, or was this another request?",
    )


def _items_and_salts(chain: Chain) -> tuple[list[str], list[str]]:
    """The names of items in their order, and what else is on the first block but the adapter."""
    names: list[str] = []
    salts: list[str] = []
    for at, keys in enumerate(chain.keys or ()):
        for key in keys or ():
            if isinstance(key, tuple):
                if key[1] >= 0:  # else it began in a block before
                    names.append(key[0])
            elif at == 0 and key != chain.lora_name:
                salts.append(key)
    return names, salts


def _identified_otherwise(model: ResolvedModel) -> Iterator[tuple[str, ResolvedModel]]:
    yield from named_otherwise(model, dict.fromkeys(spellings_of(model)))
    engine = replace(model.engine, lora_in_identities=not model.engine.lora_in_identities)
    yield "--enable-tower-connector-lora", replace(model, engine=engine)
    for profile in ERAS[1:]:
        engine = replace(model.engine, identify=profile.identify)
        yield f"--backend vllm=={profile.version}", replace(model, engine=engine)


def _adapter(name: str | None) -> str:
    return "no adapter" if name is None else f"the adapter {name!r}"
