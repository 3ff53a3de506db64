"""``mmroute validate --events``: compare block hashes with those that an engine announces."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from mmroute.cli.common import output_file
from mmroute.engines.running import RunningEngine
from mmroute.engines.settings import EngineSettings
from mmroute.errors import MmrouteError, Reason
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel
from mmroute.parity.cases import Case
from mmroute.parity.comparison import Finding, Verdict
from mmroute.parity.events.comparison import Announced, compare_announced, compare_watched, proposal
from mmroute.parity.events.recordings import read_recording, write_recording
from mmroute.parity.report import Report

_SERVERS: Final = ("http://", "https://")
_ENDPOINTS: Final = ("tcp://", "ipc://")
_ENVIRONMENT: Final = "PYTHONHASHSEED="
_BACKEND: Final = "--backend "
_ROUNDS: Final = 3

_Cases: TypeAlias = Callable[[argparse.Namespace, ResolvedModel], Iterable[Case]]
_Compare: TypeAlias = Callable[[ResolvedModel], Iterable[Finding]]


def add_events(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--events",
        metavar="EVENTS",
        help="the engine's KV events: tcp://HOST:PORT (needs pip install 'mmroute[events]'), or a "
        "file that --record wrote",
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        type=output_file,
        help="with --events: keep the requests and events",
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=float,
        default=30.0,
        help="with --events and without --against: how long to listen (default: %(default)g)",
    )


def wrong_events(arguments: argparse.Namespace) -> str:
    """The error in the options; empty if there is none."""
    against, is_file = arguments.against, Path(arguments.events).is_file()
    if not is_file and not arguments.events.startswith(_ENDPOINTS):
        return f"{arguments.events}: there is no such file, and it is no tcp://HOST:PORT"
    if arguments.record is not None and against is None and not is_file:
        return "--record keeps the requests that are sent: give the server with --against URL"
    if is_file and (against or arguments.cases or arguments.random or arguments.record):
        return "a recording brings its own requests: leave out --against, --cases and --record"
    if against is not None and not against.startswith(_SERVERS):
        return f"with --events, --against is the URL of the server, found {against}"
    if against is None and not is_file and (arguments.cases or arguments.random):
        return "requests are sent to a server: give its URL with --against"
    return ""


def events_report(arguments: argparse.Namespace, cases: _Cases) -> Report:
    """The report of a comparison with the blocks that an engine announced.

    Raises:
        MmrouteError: the model, the server or the recording is not available.
    """
    model = _resolved(arguments, ())
    path = Path(arguments.events)
    running: RunningEngine | None = None
    if path.is_file() or arguments.against is not None:
        if path.is_file():
            announced = read_recording(path)
        else:
            running, announced = _sent(arguments, cases, model)
        if arguments.record is not None:
            write_recording(arguments.record, announced)
        compare: _Compare = partial(compare_announced, all_announced=announced)
    else:
        from mmroute.parity.events.live import watched  # pyzmq, an extra

        compare = partial(compare_watched, batches=watched(arguments.events, arguments.seconds))
    findings = tuple(compare(model))
    if not findings:
        raise MmrouteError(
            Reason.ORACLE_UNAVAILABLE,
            f"{arguments.events} announced no whole prompt. Was the engine started with "
            "--kv-events-config, and did it get requests meanwhile?",
        )
    return Report(
        model=model.name,
        family=model.family.family,
        oracle=f"events of {arguments.events}",
        findings=findings,
        tokenizer=model.tokenizer,
        engine="" if running is None else str(running),
        warning="" if running is None else running.warning(model.engine),
        proposal=_proposed(arguments, findings, compare),
    )


def _sent(
    arguments: argparse.Namespace, cases: _Cases, model: ResolvedModel
) -> tuple[RunningEngine, list[Announced]]:
    """Send the cases to an engine; the engine, and the blocks that it announced."""
    from mmroute.parity.events.live import announced_by  # pyzmq, an extra
    from mmroute.parity.oracles.http import HttpOracle  # loads httpcore

    oracle = HttpOracle(
        arguments.against, served_model=arguments.served_model, api_key=arguments.api_key
    )
    sent = announced_by(arguments.events, cases(arguments, model), oracle.generate)
    return oracle.running, list(sent)


def _resolved(arguments: argparse.Namespace, changes: tuple[str, ...]) -> ResolvedModel:
    """The model with the settings of the arguments and these changes."""
    environment = [change for change in changes if change.startswith(_ENVIRONMENT)]
    backends = [c.removeprefix(_BACKEND) for c in changes if c.startswith(_BACKEND)]
    options = [c for c in changes if not c.startswith((_ENVIRONMENT, _BACKEND))]
    line = " ".join([*environment, arguments.engine_args, *options])
    renamed = any(option.startswith("--model ") for option in options)
    return resolve_model(
        arguments.model,
        backend=backends[0] if backends else arguments.backend,
        model_id=None if renamed else arguments.model_id,
        revision=arguments.revision,
        engine_settings=EngineSettings.from_args(line, config=arguments.engine_config),
    )


def _proposed(arguments: argparse.Namespace, findings: Iterable[Finding], compare: _Compare) -> str:
    """A sentence with the settings to give, and with their effect; empty if there are none."""
    changes: tuple[str, ...] = ()
    findings = list(findings)
    for _ in range(_ROUNDS):  # one wrong setting may hide another one of the same request
        more = tuple(change for change in proposal(findings) if change not in changes)
        if not more:
            break
        changes += more
        try:
            findings = list(compare(_resolved(arguments, changes)))
        except MmrouteError as error:
            return f"proposed: {' '.join(changes)}; with these the model is not loaded: {error}"
    if not changes:
        return ""
    decided = sum(finding.verdict is not Verdict.UNDECIDED for finding in findings)
    equal = sum(finding.verdict is Verdict.EQUAL for finding in findings)
    return f"proposed: {' '.join(changes)}; with these {equal} of {decided} would be equal"
