"""``mmroute validate --events``: compare block hashes with those that an engine announces."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from mmroute.cli.arguments import EVENT_ENDPOINTS, output_file
from mmroute.cli.output import say, with_progress
from mmroute.engines.running import RunningEngine
from mmroute.engines.vllm.serve_command import plain_words
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import MmrouteError, Reason
from mmroute.lab.parity.cases import Case
from mmroute.lab.parity.causes import name_taken_out, without
from mmroute.lab.parity.comparison import Finding, Verdict
from mmroute.lab.parity.events.comparison import (
    Announced,
    compare_announced,
    compare_watched,
    proposal,
)
from mmroute.lab.parity.events.recordings import read_recording, recorded
from mmroute.lab.parity.report import Report, report_of
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel

_SERVERS: Final = ("http://", "https://")
_VARIABLE: Final = re.compile(r"[A-Z_]+=")
_BACKEND: Final = "--backend "
_ROUNDS: Final = 4
_WATCHED: Final = (
    "Only the hashes of announced tokens were compared. Whether they are this model's tokens and "
    "images is not known without the requests."
)

_Cases: TypeAlias = Callable[[argparse.Namespace, ResolvedModel], Iterable[Case]]
_Compare: TypeAlias = Callable[[ResolvedModel], Iterable[Finding]]


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
    if is_file and (against or arguments.cases or arguments.random or arguments.record):
        return "a recording brings its own requests: leave out --against, --cases and --record"
    if against is not None and not against.startswith(_SERVERS):
        return f"with --events, --against is the URL of the server, found {against}"
    if against is None and not is_file and (arguments.cases or arguments.random):
        return "requests are sent to a server: give its URL with --against"
    return ""


def events_report(arguments: argparse.Namespace, cases: _Cases) -> Report:
    """The report of a comparison with the blocks that an engine announced."""
    model = resolved(arguments)
    path = Path(arguments.events)
    running: RunningEngine | None = None
    announced: Iterable[Announced]
    more: dict[str, Any]
    if path.is_file() or arguments.against is not None:
        if path.is_file():
            running, announced = read_recording(path)
        else:
            running, announced = _sent(arguments, cases, model)
        found = compared(arguments, model, announced, running=running)
        more = {"modalities": tuple(model.media)}
    else:
        from mmroute.lab.parity.events.live import watched  # pyzmq, an extra

        compare = partial(compare_watched, batches=watched(arguments.events, arguments.seconds))
        found = Compared(tuple(compare(model)), compare)
        more = {"notes": (_WATCHED,)}
    if not found.findings:
        raise MmrouteError(
            Reason.ORACLE_UNAVAILABLE,
            f"{arguments.events} announced no whole prompt. Was the engine started with "
            "--kv-events-config, and did it get requests meanwhile?",
        )
    return report_of(
        model,
        f"events of {arguments.events}",
        found.findings,
        running,
        proposal=proposed_settings(arguments, found),
        **more,
    )


class Compared(NamedTuple):
    """The result of a comparison.

    Attributes:
        findings: the findings, in the order of the requests.
        compare: compares the same events with a model of other settings.
        heard: whether there was any event.
    """

    findings: tuple[Finding, ...]
    compare: _Compare
    heard: bool = True


def compared(
    arguments: argparse.Namespace,
    model: ResolvedModel,
    all_announced: Iterable[Announced],
    *,
    alone: bool = False,
    running: RunningEngine | None = None,
) -> Compared:
    """Compare requests in the order in which they come, until the last one or an interrupt."""
    kept: list[Announced] = []
    if arguments.record is not None:
        all_announced = recorded(arguments.record, all_announced, running)
    compare = partial(compare_announced, alone=alone, running=running)
    findings: list[Finding] = []
    try:
        coming = compare(model, all_announced=_keeping(all_announced, kept))
        for finding in with_progress(coming, "requests compared", watched=sys.stderr.isatty()):
            findings.append(finding)  # noqa: PERF402 - those before an interrupt stay
    except KeyboardInterrupt:
        say(f"interrupted after {len(kept)} requests: the report is about these")
    again = partial(compare, all_announced=kept)
    return Compared(tuple(findings), again, any(one.batches for one in kept))


def _keeping(items: Iterable[Announced], into: list[Announced]) -> Iterator[Announced]:
    for item in items:
        into.append(item)
        yield item


def _sent(
    arguments: argparse.Namespace, cases: _Cases, model: ResolvedModel
) -> tuple[RunningEngine, Iterable[Announced]]:
    """Send the cases to an engine; the engine, and the blocks that it announces."""
    from mmroute.lab.parity.events.live import announced_by  # pyzmq, an extra
    from mmroute.lab.parity.oracles.http import HttpOracle  # loads httpcore

    oracle = HttpOracle(
        arguments.against, served_model=arguments.served_model, api_key=arguments.api_key
    )
    return oracle.running, announced_by(arguments.events, cases(arguments, model), oracle.generate)


def resolved(arguments: argparse.Namespace, changes: tuple[str, ...] = ()) -> ResolvedModel:
    """The model with the settings of the arguments and these changes."""
    removed = [name for name in map(name_taken_out, changes) if name]
    changes = tuple(change for change in changes if not name_taken_out(change))
    environment = [change for change in changes if _VARIABLE.match(change)]
    backends = [c.removeprefix(_BACKEND) for c in changes if c.startswith(_BACKEND)]
    options = [c for c in changes if c not in environment and not c.startswith(_BACKEND)]
    # Of two values the last one counts, but variables stand in front, and single keys win.
    replaced = (*(_name(c) + "=" for c in environment), *(_name(c) + "." for c in options))
    given = [w for w in plain_words(arguments.engine_args) if not w.startswith(replaced)]
    line = " ".join([*environment, shlex.join(given), *options])
    renamed = any(option.startswith("--model ") for option in options)
    return resolve_model(
        arguments.model,
        backend=backends[0] if backends else arguments.backend,
        model_id=None if renamed else arguments.model_id,
        revision=arguments.revision,
        engine_settings=without(
            VllmSettings.from_args(line, config=arguments.engine_config), *removed
        ),
    )


def proposed_settings(arguments: argparse.Namespace, compared: Compared) -> str:
    """A sentence with the settings to give, and with their effect; empty if there are none."""
    changes: tuple[str, ...] = ()
    findings = list(compared.findings)
    agreed = _num_agreed(findings)
    for _ in range(_ROUNDS):  # one wrong setting may hide another one of the same request
        more = tuple(change for change in proposal(findings) if change not in changes)
        if not more:
            break
        names = {_name(change) for change in more}
        more = (*(change for change in changes if _name(change) not in names), *more)
        try:
            tried = list(compared.compare(resolved(arguments, more)))
        except MmrouteError as error:
            return f"proposed: {_listed(more)}; with these the model is not loaded: {error}"
        if _num_agreed(tried) <= agreed:
            break
        findings, changes, agreed = tried, more, _num_agreed(tried)
    if not changes:
        return ""
    undecided = (Verdict.UNDECIDED, Verdict.NO_BLOCK)
    decided = sum(finding.verdict not in undecided for finding in findings)
    return f"proposed: {_listed(changes)}; with these {agreed} of {decided} would be equal"


def _listed(changes: tuple[str, ...]) -> str:
    """Options as they stand in a line, and then those to take out of it."""
    added = " ".join(change for change in changes if not name_taken_out(change))
    return ", ".join(filter(None, [added, *filter(name_taken_out, changes)]))


def _name(change: str) -> str:
    """The name of an option or a variable; a later value for it replaces an earlier one."""
    return name_taken_out(change) or re.split("[ =]", change, maxsplit=1)[0]


def _num_agreed(findings: Iterable[Finding]) -> int:
    return sum(finding.verdict in (Verdict.EQUAL, Verdict.REFUSED) for finding in findings)
