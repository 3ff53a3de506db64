"""The way of a request: parse, render, encode, count, place, identify."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mmroute.answering.identities import identities_of
from mmroute.answering.media import check_decoded, items_of
from mmroute.answering.prompt_ids import prompt_ids, too_long
from mmroute.answering.routing import Routing, SizedItems
from mmroute.answering.stages import Stage, Stopwatch
from mmroute.errors import (
    InexactError,
    Reason,
    image_refused,
    invalid,
    item_refused,
)
from mmroute.geometry import Geometry, Overrides
from mmroute.hashing.hashes import HashCache, Hashes, RefusedHashes
from mmroute.images.data_url import KnownFiles
from mmroute.net.links import ImageLinks
from mmroute.placement import Expansion, Insertion
from mmroute.requests.checks import check_json, check_request
from mmroute.requests.items import AudioLength, ImageFile, ImageSize, Items, Modality, VideoSize
from mmroute.requests.request import Lora, Request
from mmroute.reuse.fast_paths import FastPaths
from mmroute.token_ids import TokenIds

if TYPE_CHECKING:
    from mmroute.chat.cache import ChatCache
    from mmroute.model.resolved import ResolvedModel
    from mmroute.release import Release


class Caches(NamedTuple):
    """The caches of a normalizer; None for a cache that is switched off."""

    hashes: HashCache | None = None  # the cache of block hashes
    chats: ChatCache | None = None  # the cache of rendered chats, all of one model
    images: KnownFiles | None = None  # the cache of images in data URLs

    @classmethod
    def of(cls, options: FastPaths) -> Caches:
        """Empty caches of the sizes in the options."""
        from mmroute.chat.cache import ChatCache  # jinja2

        return cls(
            HashCache(options.hash_cache_bytes) if options.hash_cache_bytes else None,
            ChatCache(options.chat_cache_bytes) if options.chat_cache_bytes else None,
            KnownFiles(options.image_cache_bytes) if options.image_cache_bytes else None,
        )


NO_CACHES: Final = Caches()
"""All caches are switched off."""
_IMAGES: Final = frozenset({Modality.IMAGE})


class Prepared(NamedTuple):
    """A request whose items are counted, and not yet placed."""

    request: Request  # the request, with the defaults from the engine's settings
    ids: TokenIds  # the un-expanded prompt, shape (n,)
    items: Items  # the items by modality, in the order of the request
    # The geometry of each of these modalities, under the request's overrides.
    geometries: Mapping[Modality, Geometry]
    sizes: Mapping[Modality, Sequence[Any]]  # the numbers of each of these items
    insertions: Sequence[Insertion]  # the replacement of each item, modality by modality


def prepare(
    model: ResolvedModel,
    request: Request,
    *,
    links: ImageLinks | None = None,
    caches: Caches = NO_CACHES,
    watch: Stopwatch | None = None,
) -> Prepared:
    """The first half of the way: everything before items are placed."""
    check_compared(model.engine.release)
    request = with_adapter(model, request)
    check_request(request)
    request = model.engine.accept(request, model.chat)
    chat = None if request.messages is None else model.chat.read(request, caches.chats)
    items = items_of(model, request, chat, links, caches.images)
    if watch is not None:
        watch.lap(Stage.PARSE)
    ids = prompt_ids(model, request, chat, items, watch)
    if watch is not None:
        watch.lap(Stage.ENCODE)
    if not items:
        return Prepared(request, ids, items, {}, {}, ())
    geometries = {modality: geometry_of(model, request, modality) for modality in items}
    if not items.keys() <= _IMAGES:  # images alone were added up when they were read
        check_decoded(items, model.engine.limits, geometries)
    sizes = {modality: tuple([item.size for item in listed]) for modality, listed in items.items()}
    insertions = _insertions(model, geometries, sizes)
    if watch is not None:
        watch.lap(Stage.COUNT)
    return Prepared(request, ids, items, geometries, sizes, insertions)


def check_compared(release: Release) -> None:
    """Refuse a version that nobody compared."""
    if release.unproved:
        raise InexactError(
            Reason.UNPROVED_VERSION,
            f"nobody compared {release.name} {release.version}; its answers would be those of the "
            f"nearest known version, {release.era}. Accept them with --accept-version "
            f"{release.version} (accept_version), and let its KV events prove them",
        )


def answer(
    model: ResolvedModel,
    request: Request,
    *,
    links: ImageLinks | None = None,
    caches: Caches = NO_CACHES,
    watch: Stopwatch | None = None,
) -> Routing:
    """The token IDs of a request, or why there are none. A request that is JSON never raises."""
    if watch is not None:
        watch.resume()
    try:
        prepared = prepare(model, request, links=links, caches=caches, watch=watch)
        return complete(model, prepared, caches, watch)
    except Exception as error:  # noqa: BLE001 - what is no refusal is raised again
        return refused(request, error)


def answer_for(
    workers: Iterable[tuple[ResolvedModel, ImageLinks | None, Caches]], request: Request
) -> list[Routing]:
    """The answer of each kind of workers to one request."""
    known: list[tuple[ResolvedModel, Prepared]] = []
    routings = []
    for model, links, caches in workers:
        try:
            same = (own for first, own in known if _same_prompt(first, model, own))
            if (shared := next(same, None)) is None:
                prepared = prepare(model, request, links=links, caches=caches)
                known.append((model, prepared))
            else:
                lora = with_adapter(model, request).lora
                prepared = shared._replace(request=shared.request._replace(lora=lora))
            routings.append(complete(model, prepared, caches))
        except Exception as error:  # noqa: BLE001 - what is no refusal is raised again
            routings.append(refused(request, error))
    return routings


def _same_prompt(first: ResolvedModel, second: ResolvedModel, prepared: Prepared) -> bool:
    if first.chat is not second.chat:
        return False
    one, other = first.engine.limits, second.engine.limits
    if one.applies_exif_orientation == other.applies_exif_orientation:
        return True
    files = [i for listed in prepared.items.values() for i in listed if isinstance(i, ImageFile)]
    return all(replace(file.size, uuid=None) == file.unturned for file in files)


def complete(
    model: ResolvedModel, prepared: Prepared, caches: Caches, watch: Stopwatch | None = None
) -> Routing:
    """The second half of the way: the items placed and named."""
    expansion = expand(model, prepared)
    if watch is not None:
        watch.lap(Stage.PLACE)
    request, items = prepared.request, prepared.items
    placeholders = expansion.placeholders
    identities = identities_of(model, request, items, prepared.geometries, placeholders)
    if watch is not None:
        watch.lap(Stage.IDENTIFY)
    sized: SizedItems | None = None
    if items and model.engine.limits.takes_metadata:
        listed = [
            (modality, prepared.geometries[modality], sizes)
            for modality, sizes in prepared.sizes.items()
        ]
        sized = (model.context, *listed)
    expansion.token_ids.setflags(write=False)
    prepared.ids.setflags(write=False)
    return Routing(
        placeholders=placeholders,
        identities=identities,
        lora=request.lora,
        cache_salt=request.cache_salt,
        hashing=_hashing(model, request),
        reads_cache=request.reads_cache and model.hashing.settings.keeps_blocks,
        _token_ids=expansion.token_ids,
        _unexpanded=prepared.ids,
        _hash_cache=caches.hashes,
        _sized_items=sized,
    )


def refused(request: Request, error: Exception) -> Routing:
    """The answer where `prepare` or `complete` raised. Raises what is no refusal: a bug."""
    if isinstance(error, RecursionError):  # messages, tools and kwargs are JSON of any depth
        return Routing(reason=Reason.INVALID_REQUEST, message="the request is nested too deeply")
    if not isinstance(error, InexactError):
        # No stage checks that each value is JSON: one such as a numpy array may raise anything.
        try:
            check_json(request)
        except InexactError as inexact:
            return refused(request, inexact)
        raise error
    return Routing(reason=error.reason, message=str(error))


def with_adapter(model: ResolvedModel, request: Request) -> Request:
    """The request with the adapter that it names as its model, if it names one."""
    name, loras = request.model, model.engine.naming.loras
    if loras and request.lora is None and isinstance(name, str) and name in loras:
        return request._replace(lora=Lora(name, loras[name]))
    return request


def _hashing(model: ResolvedModel, request: Request) -> Hashes:
    why = model.engine.naming.why_unhashed(request)
    return RefusedHashes(model.hashing.settings, why) if why else model.hashing


def expand(model: ResolvedModel, prepared: Prepared) -> Expansion:
    """Every item in its place, in a prompt that fits the context."""
    if prepared.insertions:
        expansion = model.placement.expand(prepared.ids, prepared.insertions)
    else:
        expansion = Expansion(prepared.ids, ())
    _check_length(model, expansion.token_ids)
    kept = prepared.request.truncate_prompt_tokens
    if kept is not None:
        _check_uncut(model, kept, max(len(prepared.ids), len(expansion.token_ids)))
    return expansion


def geometry_of(model: ResolvedModel, request: Request, modality: Modality) -> Geometry:
    """The geometry of a modality under the request's overrides."""
    rules = model.media[modality]
    processor, media_io = request.mm_processor_kwargs, request.media_io_kwargs
    if not processor and not media_io:
        return rules.geometry
    return rules.overridden(Overrides(processor, media_io.get(modality, {})))


def _insertions(
    model: ResolvedModel,
    geometries: Mapping[Modality, Geometry],
    sizes: Mapping[Modality, Sequence[Any]],
) -> list[Insertion]:
    """The replacement of each item, within the limits of the engine."""
    insertions: list[Insertion] = []
    total = 0
    for modality, numbers in sizes.items():
        target = model.media[modality].target
        replacements = geometries[modality].replacements(numbers, model.context)
        for number, replacement in enumerate(replacements):
            if not len(replacement.token_ids):
                raise _without_tokens(numbers[number])
            num_embeds = replacement.num_embeds
            if num_embeds > model.encoder_cache:
                raise InexactError(
                    Reason.ITEM_TOO_LARGE,
                    f"{modality} {number + 1} ({numbers[number]}) has {num_embeds} features; the "
                    f"engine's encoder cache may hold no more than {model.encoder_cache}. Send a "
                    f"smaller {modality}",
                )
            total += num_embeds
            if total >= model.max_model_len:
                raise too_long(model, total, f"{modality}s alone give")
            insertions.append(
                Insertion(modality, number, replacement.target or target, replacement)
            )
    return insertions


def _check_length(model: ResolvedModel, token_ids: TokenIds) -> None:
    if not len(token_ids):
        raise InexactError(Reason.EMPTY_PROMPT, "the prompt has no token; the engine refuses it")
    if len(token_ids) >= model.max_model_len:
        raise too_long(model, len(token_ids), "expanded prompt has")


def _check_uncut(model: ResolvedModel, kept: int, longest: int) -> None:
    """Refuse a prompt that the engine truncates, be it before or after items are placed."""
    if kept == 0:
        raise InexactError(Reason.EMPTY_PROMPT, "truncate_prompt_tokens leaves no token")
    if kept > model.max_model_len:
        raise invalid(
            f"truncate_prompt_tokens={kept} is above the context of {model.max_model_len} tokens"
        )
    if -1 < kept < longest:
        raise InexactError(
            Reason.UNSUPPORTED_FIELD,
            f"truncate_prompt_tokens={kept} would shorten this prompt of {longest} tokens; that is "
            "not covered",
        )


def _without_tokens(size: ImageSize | VideoSize | AudioLength) -> InexactError:
    """The error of an item that the engine counts no token for.

    Source: vLLM ``multimodal/processing/processor.py`` (`_iter_placeholders` passes over it,
    `_validate_mm_placeholders` misses it).
    """
    refused = image_refused if size.modality is Modality.IMAGE else item_refused
    return refused(size, "it has no token, and would have no place in the prompt")
