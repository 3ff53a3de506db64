"""Fetches the files of all workers of one model, and compares them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mmroute.errors import ModelError, Reason
from mmroute.server.bundle.client import Bundle, fetch_bundle, grpc_address
from mmroute.text.fingerprint import sha256_of

_MAX_CALLS: Final = 8  # at a time, so that dead workers are not waited for one by one


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
        ModelError: `fleet_disagrees` if the workers hold different files, `tokenizer_unavailable`
            if no worker sent files; the message has each failure.
        ValueError: there is no worker, or `fetch_bundle` does not accept an address.
    """
    if not workers:
        raise ValueError(f"no worker is given from which to fetch the files of {model}")
    for worker in workers:
        grpc_address(worker)
    failures: list[Exception] = []
    with contextlib.ExitStack() as fetched:

        def fetch_one(worker: str) -> Bundle | None:
            try:
                return fetched.enter_context(fetch(worker))
            except Exception as error:  # noqa: BLE001 - whatever it is, others may have the files
                failures.append(error)
                return None

        with ThreadPoolExecutor(_MAX_CALLS) as pool:
            found = [one for one in pool.map(fetch_one, dict.fromkeys(workers)) if one is not None]
        if not found:
            raise ModelError(
                Reason.TOKENIZER_UNAVAILABLE,
                f"No worker sent the files of {model}: {'; '.join(map(str, failures))}",
            ) from ExceptionGroup("the workers that were asked", failures)
        if len({bundle.fingerprint for bundle in found}) > 1:
            raise _disagreement(model, found)
        fetched.pop_all()
    for other in found[1:]:
        other.close()
    return found[0]


def _disagreement(model: str, found: Sequence[Bundle]) -> ModelError:
    """The error for different files, with the fingerprint of each worker's."""
    held = [{(n, sha256_of(path)) for n, path in bundle.files.items()} for bundle in found]
    differing = sorted({name for name, _ in held[0].union(*held) - held[0].intersection(*held)})
    workers = ", ".join(f"{b.worker} ({b.fingerprint[:12]})" for b in found)
    return ModelError(
        Reason.FLEET_DISAGREES,
        f"The workers of {model} hold different files, so no one tokenizer is right for all: "
        f"{', '.join(differing)}; by fingerprint: {workers}. Restart the workers with old files, "
        "or serve them under a name of their own.",
    )
