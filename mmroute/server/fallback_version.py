"""Checks whether the fallback is the engine that this server matches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from mmroute.engine import Engine
from mmroute.engines.running import ask_engine
from mmroute.errors import InexactError
from mmroute.net.remote import Remote
from mmroute.net.transport import Transport
from mmroute.server.metrics import Metrics
from mmroute.server.settings import ServerSettings

_LOG: Final = logging.getLogger(__name__)
_ASKED_EVERY: Final = 30.0  # seconds; a fleet may be upgraded while this server runs


async def watch_fallback(
    settings: ServerSettings,
    matched: Engine,
    metrics: Metrics,
    on_failure: Callable[[str], object] | None,
) -> None:
    """Ask the fallback for its version every 30 seconds, and warn if its rules are others."""
    if settings.fallback_url is None:
        return
    transport = Transport(
        Remote(settings.fallback_url, settings.fallback_api_key, settings.fallback_timeout)
    )
    said = None
    with contextlib.closing(transport):
        while True:
            with contextlib.suppress(InexactError):
                running = await asyncio.to_thread(ask_engine, transport)
                if str(running) != said:
                    said = str(running)
                    warning = running.warning(matched)
                    metrics.fallback_engine(running, matches=not warning)
                    if warning:
                        _LOG.warning("fallback of other rules", extra={"fields": {"why": warning}})
                        if settings.strict and on_failure is not None:
                            on_failure(f"the fallback: {warning}")
            await asyncio.sleep(_ASKED_EVERY)
