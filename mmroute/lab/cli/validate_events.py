"""``mmroute validate --events``: compare block hashes with those that an engine announces."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from mmroute.cli.arguments import EVENT_ENDPOINTS, output_file
from mmroute.cli.output import say, with_progress
from mmroute.engines.running import RunningEngine
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import MmrouteError, Reason
from mmroute.lab.parity.cases import Case
from mmroute.lab.parity.causes import proposal
from mmroute.lab.parity.comparison import Finding
from mmroute.lab.parity.events.comparison import Announced, compare_announced, compare_watched
from mmroute.lab.parity.events.hashings import told_by_events
from mmroute.lab.parity.events.recordings import read_recording, recorded
from mmroute.lab.parity.report import Report, report_of
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel

_SERVERS: Final = ("http://", "https://")
_WATCHED: Final = (
    "Only the hashes of announced tokens were compared. Whether they are this model's tokens and "
    "images is not known without the requests."
)

_Cases: TypeAlias = Callable[[argparse.Namespace, ResolvedModel], Iterable[Case]]


def add_events(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--events",
        metavar="EVENTS",
        help="the engine's KV events: tcp://HOST:PORT (needs pip install '.[events]'), or a "
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
    if not is_file and not arguments.events.startswith(EVENT_ENDPOINTS):
        return f"{arguments.events}: there is no such file, and it is no tcp://HOST:PORT"
    if arguments.record is not None and against is None and not is_file:
        return "--record keeps the requests that are sent: give the server with --against URL"
    if is_file and (against or arguments.cases or arguments.record):
        return "a recording brings its own requests: leave out --against, --cases and --record"
    if against is not None and not against.startswith(_SERVERS):
        return f"with --events, --against is the URL of the server, found {against}"
    if against is None and not is_file and arguments.cases:
        return "requests are sent to a server: give its URL with --against"
    return ""


def events_report(arguments: argparse.Namespace, cases: _Cases) -> Report:
    """The report of a comparison with the blocks that an engine announced."""
    model = resolved(arguments)
    path = Path(arguments.events)
    name = f"events of {arguments.events}"
    if arguments.against is None and not path.is_file():
        report = _watched(arguments, model, name)
    else:
        found = read_recording(path) if path.is_file() else _sent(arguments, cases, model)
        report = compared(arguments, model, name, found[1], running=found[0])
    if not report.findings:
        raise MmrouteError(
            Reason.ORACLE_UNAVAILABLE,
            f"{arguments.events} announced no whole prompt. Was the engine started with "
            "--kv-events-config, and did it get requests meanwhile?",
        )
    return report


def _watched(arguments: argparse.Namespace, model: ResolvedModel, name: str) -> Report:
    """The report of how the prompts of others are hashed."""
    from mmroute.lab.parity.events.live import watched  # pyzmq, an extra

    batches = watched(arguments.events, arguments.seconds)
    again = partial(compare_watched, batches=batches)
    findings = tuple(again(model))
    proposed = proposal(model, findings, again, told=told_by_events(model, batches))
    return report_of(model, name, findings, None, proposal=proposed, notes=(_WATCHED,))


def compared(
    arguments: argparse.Namespace,
    model: ResolvedModel,
    name: str,
    all_announced: Iterable[Announced],
    *,
    alone: bool = False,
    running: RunningEngine | None = None,
    unheard: str = "",
) -> Report:
    """Compare requests in the order in which they come, until the last one or an interrupt.

    The note `unheard` is for an engine that announced no block.
    """
    kept: list[Announced] = []
    if arguments.record is not None:
        all_announced = recorded(arguments.record, all_announced, running)
    findings: list[Finding] = []
    try:
        coming = compare_announced(model, _keeping(all_announced, kept), alone=alone)
        for finding in with_progress(coming, "requests compared", watched=sys.stderr.isatty()):
            findings.append(finding)  # noqa: PERF402 - those before an interrupt stay
    except KeyboardInterrupt:
        say(f"interrupted after {len(kept)} requests: the report is about these")
    batches = [batch for one in kept for batch in one.batches]
    again = partial(compare_announced, all_announced=kept, alone=alone)
    told = told_by_events(model, batches)
    return report_of(
        model,
        name,
        findings,
        running,
        proposal=proposal(model, findings, again, running=running, told=told),
        modalities=tuple(model.media),
        notes=(unheard,) if unheard and not batches else (),
    )


def _keeping(items: Iterable[Announced], into: list[Announced]) -> Iterator[Announced]:
    for item in items:
        into.append(item)
        yield item


def _sent(
    arguments: argparse.Namespace, cases: _Cases, model: ResolvedModel
) -> tuple[RunningEngine | None, Iterable[Announced]]:
    """Send the cases to an engine; the engine, and the blocks that it announces."""
    from mmroute.lab.parity.events.live import announced_by  # pyzmq, an extra
    from mmroute.lab.parity.oracles.http import HttpOracle  # loads httpcore

    oracle = HttpOracle(
        arguments.against, served_model=arguments.served_model, api_key=arguments.api_key
    )
    return oracle.running, announced_by(arguments.events, cases(arguments, model), oracle.generate)


def resolved(arguments: argparse.Namespace) -> ResolvedModel:
    """The model with the settings of the arguments."""
    return resolve_model(
        arguments.model,
        backend=arguments.backend,
        model_id=arguments.model_id,
        revision=arguments.revision,
        engine_settings=VllmSettings.from_args(
            arguments.engine_args or "", config=arguments.engine_config
        ),
    )
