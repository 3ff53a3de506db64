"""Learns from the engines' KV events how many tokens are under one hash, and what is announced."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Final

from mmroute.kv_events import Subscriber
from mmroute.server.api_errors import ApiError
from mmroute.server.entry import Entry
from mmroute.server.models import Models

_LOG: Final = logging.getLogger(__name__)
_TICK: Final = 0.25  # seconds after which a thread checks whether it is to end


async def follow_events(models: Models) -> None:
    """Hear the events of each loaded model's engine, in a thread, until this is cancelled."""
    ending = threading.Event()
    try:
        for entry in models.entries():
            if entry.source.events is None:
                continue
            await asyncio.wait([asyncio.wrap_future(entry.loading)])
            threading.Thread(
                target=_hear,
                args=(models, entry, entry.source.events, ending),
                name=f"mmroute-events-{entry.source.names[0]}",
                daemon=True,
            ).start()
        await asyncio.get_running_loop().create_future()
    finally:
        ending.set()


def _hear(models: Models, entry: Entry, endpoint: str, ending: threading.Event) -> None:
    """Tell the model the number of tokens under one hash, whenever the events tell another."""
    entry.publishers = 0
    size: int | None = None
    trust = entry.trust
    try:
        with Subscriber(endpoint) as subscriber:
            while trust is not None and not ending.is_set():
                told = trust.enter(subscriber.receive(_TICK))
                entry.publishers = subscriber.state().connected
                if told is not None and told != size:
                    size = told
                    _enter(models, entry.source.names[0], size)
    except Exception:  # noqa: BLE001 - a thread; without events requests for hashes are refused
        entry.publishers = 0
        _LOG.exception("no KV events", extra={"fields": {"endpoint": endpoint}})


def _enter(models: Models, name: str, size: int) -> None:
    try:
        entry = models.entry(name)
    except ApiError:  # the model was removed
        return
    entry.tell_block_size(size)
    fields = {"model": name, "endpoint": entry.source.events, "told": size}
    if entry.block_size_matches is False:
        text = (
            f"the engine publishes hashes of {size} tokens, and the settings of the model give "
            f"{entry.given_block_size}: answers keep that number, and no hash is equal. Correct "
            "--block-size in --engine-args, or leave it out."
        )
        _LOG.warning("block size contradicted", extra={"fields": {**fields, "text": text}})
    else:
        _LOG.info("block size told by KV events", extra={"fields": fields})
