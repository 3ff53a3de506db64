"""Fetches the files of all workers of one model, and compares them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mmroute.errors import MmrouteError, ModelError, Reason
from mmroute.server.bundle.client import Bundle, fetch_bundle, grpc_address
from mmroute.text.fingerprint import sha256_of

_MAX_CALLS: Final = 8  # at a time, so that dead workers are not waited for one by one
_SHOWN_DIGITS: Final = 12


class FleetError(MmrouteError):
    """The workers of one model hold different files.

    Attributes:
        reason: `fleet_disagrees`.
        files: the names of the files that differ, or that some workers lack.
    """

    def __init__(self, message: str, files: Sequence[str]) -> None:
        super().__init__(Reason.FLEET_DISAGREES, message)
        self.files = tuple(files)


def fetch_fleet(
    model: str, workers: Sequence[str], *, fetch: Callable[[str], Bundle] = fetch_bundle
) -> Bundle:
    """Fetch the files of all workers of a model, eight at a time, and keep one bundle.

    Workers that cannot be reached, or whose stream breaks, are skipped. The others must hold the
    same files, byte for byte. Names and contents are compared, not zips, whose digests depend on
    times.

    Args:
        model: the model's name, for messages.
        workers: the workers' addresses, at least one.
        fetch: fetches the bundle of one worker.

    Returns:
        The files of the first worker, in the order of `workers`, that sent them.

    Raises:
        FleetError: the workers hold different files.
        ModelError: `tokenizer_unavailable` if no worker sent files; the message has each failure.
        ValueError: there is no worker, or `fetch_bundle` does not accept an address.
    """
    if not workers:
        raise ValueError(f"no worker is given from which to fetch the files of {model}")
    for worker in workers:
        grpc_address(worker)
    failures: list[Exception] = []
    found: dict[str, Bundle] = {}  # by worker
    with contextlib.ExitStack() as fetched:

        def fetch_one(worker: str) -> Bundle:
            return fetched.enter_context(fetch(worker))

        with ThreadPoolExecutor(_MAX_CALLS) as pool:
            futures = {worker: pool.submit(fetch_one, worker) for worker in dict.fromkeys(workers)}
        for worker, future in futures.items():
            error = future.exception()
            if isinstance(error, Exception):
                failures.append(error)
            else:
                found[worker] = future.result()
        if not found:
            raise ModelError(
                Reason.TOKENIZER_UNAVAILABLE,
                f"No worker sent the files of {model}: {'; '.join(map(str, failures))}",
            ) from ExceptionGroup("the workers that were asked", failures)
        first, *others = found.values()
        if any(other.fingerprint != first.fingerprint for other in others):
            raise _disagreement(model, found)
        fetched.pop_all()
    for other in others:
        other.close()
    return first


def _disagreement(model: str, found: Mapping[str, Bundle]) -> FleetError:
    """The error for different files; for each file it lists the contents and their workers."""
    held: dict[str, dict[str, list[str]]] = {}
    for name in sorted({name for bundle in found.values() for name in bundle.files}):
        for worker, bundle in found.items():
            path = bundle.files.get(name)
            content = "none" if path is None else sha256_of(path)[:_SHOWN_DIGITS]
            held.setdefault(name, {}).setdefault(content, []).append(worker)
    differing = {name: contents for name, contents in held.items() if len(contents) > 1}
    shown = "; ".join(
        f"{name}: "
        + ", ".join(f"{content} at {' and '.join(at)}" for content, at in contents.items())
        for name, contents in differing.items()
    )
    return FleetError(
        f"The workers of {model} hold different files, so no one tokenizer is right for all: "
        f"{shown}. Restart the workers with old files, or serve them under a name of their own.",
        [*differing],
    )
