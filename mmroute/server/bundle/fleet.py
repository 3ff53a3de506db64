"""Fetches the files of all workers of one model, and compares them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mmroute.errors import MmrouteError, ModelError, Reason
from mmroute.server.bundle.client import Bundle, fetch_bundle, grpc_address
from mmroute.tokenizers.fingerprint import sha256_of

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
    fingerprints: dict[str, str] = {}
    failures: list[Exception] = []
    different: dict[str, Bundle] = {}
    with contextlib.ExitStack() as fetched:

        def fetch_one(worker: str) -> Bundle:
            bundle = fetch(worker)
            fetched.callback(bundle.close)
            return bundle

        with ThreadPoolExecutor(_MAX_CALLS) as pool:
            futures = {worker: pool.submit(fetch_one, worker) for worker in dict.fromkeys(workers)}
        for worker, future in futures.items():
            error = future.exception()
            if isinstance(error, Exception):
                failures.append(error)
                continue
            bundle = future.result()
            fingerprints[worker] = bundle.fingerprint
            if different.setdefault(bundle.fingerprint, bundle) is not bundle:
                bundle.close()
        if len(different) > 1:
            raise _disagreement(model, different, fingerprints)
        if not different:
            raise ModelError(
                Reason.TOKENIZER_UNAVAILABLE,
                f"No worker sent the files of {model}: {'; '.join(map(str, failures))}",
            ) from ExceptionGroup("the workers that were asked", failures)
        fetched.pop_all()  # one bundle is still open; the caller closes it
    return next(iter(different.values()))


def _disagreement(
    model: str, different: Mapping[str, Bundle], fingerprints: Mapping[str, str]
) -> FleetError:
    """The error for different files; for each file it lists the contents and their workers."""
    files: dict[str, dict[str, list[str]]] = {}
    for common, bundle in different.items():
        workers = [worker for worker, own in fingerprints.items() if own == common]
        for name in {name for other in different.values() for name in other.files}:
            content = _digest(bundle, name)
            files.setdefault(name, {}).setdefault(content, []).extend(workers)
    differing = sorted(name for name, held in files.items() if len(held) > 1)
    held_by = "; ".join(
        f"{name}: "
        + ", ".join(f"{content} at {' and '.join(at)}" for content, at in files[name].items())
        for name in differing
    )
    return FleetError(
        f"The workers of {model} hold different files, so no one tokenizer is right for all: "
        f"{held_by}. Restart the workers with old files, or serve them under a name of their own.",
        differing,
    )


def _digest(bundle: Bundle, name: str) -> str:
    """The first digits of a file's SHA-256, or words that say that there is no such file."""
    path = bundle.files.get(name)
    return "none" if path is None else sha256_of(path)[:_SHOWN_DIGITS]
