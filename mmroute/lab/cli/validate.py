"""``mmroute validate``: compare mmroute's answers with an engine's."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from mmroute.cli.arguments import EVENT_ENDPOINTS, Commands, add_command, output_file
from mmroute.cli.engine_options import load_normalizer, model_arguments
from mmroute.cli.output import failed, say, with_progress
from mmroute.engine import EngineSettings
from mmroute.engines.running import RunningEngine
from mmroute.errors import BlockSizeWarning, MmrouteError, ModelIdWarning, RandomSeedWarning, Reason
from mmroute.health.self_check import check_model
from mmroute.lab.engines import judge_of
from mmroute.lab.parity.cases import Case
from mmroute.lab.parity.causes import proposal
from mmroute.lab.parity.comparison import Finding, Verdict, compare, compare_again
from mmroute.lab.parity.events.chains import Chains
from mmroute.lab.parity.events.comparison import Announced, compare_announced, compare_watched
from mmroute.lab.parity.events.recordings import read_recording, recorded
from mmroute.lab.parity.oracles import find_oracle
from mmroute.lab.parity.oracles.vectors import VectorsOracle, write_vectors
from mmroute.lab.parity.report import Report, as_json, as_lines
from mmroute.lab.parity.suite import built_in_cases, cases_from_file
from mmroute.model.resolved import ResolvedModel

_EXIT_MISMATCH: Final = 1
EXIT_UNDECIDED: Final = 3
_UNNAMED: Final = (
    "No identities of items were compared: this oracle does not tell them. A server's render "
    "routes do, and --events."
)
_EPILOG = """\
ORACLE is one of
  vllm                 vLLM, in the environment this runs in
  transformers         the model's own processor: pip install '.[validate]'
  http://HOST:PORT     a running vLLM server, best `vllm launch render MODEL`
  FILE.jsonl           a file of vectors, which brings its own requests

--events compares block hashes with those that an engine announces in its KV events:
  --events FILE                             of a recording
  --events tcp://HOST:PORT --against http://HOST:PORT   requests are sent to the server
  --events tcp://HOST:PORT                  only how blocks are hashed, of requests of others

Without --cases the requests are mmroute's own: sizes at the limits and rounding edges of this
model's grid, conversations, unusual text, typed placeholders.

exit status: 0 parity; 1 a mismatch, or no answer where the oracle has one; 2 bad usage;
3 nothing could be decided: the model, the oracle or the requests cannot be had, both refuse
every request with an image, video or audio, or --events has no block to compare
"""
_SERVERS: Final = ("http://", "https://")
_WATCHED: Final = (
    "Only the hashes of announced tokens were compared. Whether they are this model's tokens and "
    "images is not known without the requests."
)


def add_validate(commands: Commands) -> None:
    """Add the command."""
    validate = add_command(
        commands,
        "validate",
        "compare the answers for a model with an engine's, and say what is wrong where they differ",
        _validate,
        epilog=_EPILOG,
    )
    # Exit status 1 is a mismatch, and where something fails none was seen.
    validate.set_defaults(exit_of_failure=EXIT_UNDECIDED)
    model_arguments(validate)
    validate.add_argument(
        "--against", metavar="ORACLE", help="the oracle to compare with, see below"
    )
    validate.add_argument(
        "--events",
        metavar="EVENTS",
        help="the engine's KV events: tcp://HOST:PORT (needs pip install '.[events]'), or a "
        "file that --record wrote",
    )
    validate.add_argument(
        "--record",
        metavar="FILE",
        type=output_file,
        help="with --events: keep the requests and events",
    )
    validate.add_argument(
        "--seconds",
        metavar="N",
        type=float,
        default=30.0,
        help="with --events and without --against: how long to listen (default: %(default)g)",
    )
    cases_argument(validate)
    validate.add_argument(
        "--write-vectors",
        metavar="FILE",
        type=output_file,
        help="keep the oracle's answers in a file of vectors, which --against takes",
    )
    validate.add_argument(
        "--trust-remote-code", action="store_true", help="let code run that comes with the model"
    )
    validate.add_argument(
        "--served-model",
        metavar="NAME",
        help="the server's name for the model (default: its first one)",
    )
    validate.add_argument(
        "--strict",
        action="store_true",
        help="exit status 1 also where the oracle is an engine with other rules than those "
        "matched, or of a version that is not known",
    )


def _validate(arguments: argparse.Namespace) -> int:
    wrong = _wrong_usage(arguments)
    if wrong:
        return failed(arguments, wrong)
    if arguments.events is not None:
        with warnings.catch_warnings():
            # The events have both values, and the report names one that was guessed wrongly.
            for guess in (BlockSizeWarning, ModelIdWarning, RandomSeedWarning):
                warnings.simplefilter("ignore", guess)
            report = _by_events(arguments)
        return print_report(arguments, report)
    return _compared(arguments)


def _wrong_usage(arguments: argparse.Namespace) -> str:
    """The error in the arguments; empty if there is none."""
    if arguments.events is not None:
        return _wrong_events(arguments)
    if arguments.against is None:
        return "give the oracle to compare with: --against ORACLE, or --events"
    if arguments.cases is not None and Path(arguments.against).is_file():
        return "a file of vectors brings its own requests: leave out --cases"
    return ""


def _wrong_events(arguments: argparse.Namespace) -> str:
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


def _compared(arguments: argparse.Namespace) -> int:
    normalizer = load_normalizer(arguments)
    oracle = find_oracle(
        arguments.against,
        arguments.model,
        revision=arguments.revision,
        trust_remote_code=arguments.trust_remote_code,
        served_model=arguments.served_model,
        api_key=arguments.api_key,
    )
    if isinstance(oracle, VectorsOracle):
        cases = oracle.cases()
    else:
        cases = own_cases(arguments, normalizer.model)
    findings = with_progress(
        compare(normalizer.model, oracle, cases),
        "requests compared",
        total=len(cases),
        watched=sys.stderr.isatty(),
    )
    compared = list(findings)
    again = partial(compare_again, findings=compared)
    report = Report(
        normalizer.model,
        f"{oracle.name} {oracle.version}".strip(),
        tuple(compared),
        oracle.running,
        proposal(
            normalizer.model,
            compared,
            again,
            judge_of(normalizer.model).changes,
            running=oracle.running,
        ),
        _uncompared(compared),
    )
    if arguments.write_vectors is not None:
        fingerprints = check_model(normalizer.model).fingerprints
        write_vectors(arguments.write_vectors, report, oracle, fingerprints)
    return print_report(arguments, report)


def _uncompared(findings: Iterable[Finding]) -> tuple[str, ...]:
    """A note if answers with items are equal, and nobody told the names of the items."""
    equal = [f for f in findings if f.verdict is Verdict.EQUAL and f.case.modalities]
    if not equal or any(f.theirs and f.theirs.identities is not None for f in equal):
        return ()
    return (_UNNAMED,)


def _by_events(arguments: argparse.Namespace) -> Report:
    """The report of a comparison with the blocks that an engine announced."""
    model = resolved(arguments)
    path = Path(arguments.events)
    name = f"events of {arguments.events}"
    if arguments.against is None and not path.is_file():
        report = _watched(arguments, model, name)
    else:
        found = read_recording(path) if path.is_file() else _sent(arguments, model)
        report = compared(arguments, model, name, found[1], running=found[0])
    if not report.findings:
        raise MmrouteError(
            Reason.ORACLE_UNAVAILABLE,
            f"{arguments.events} announced no whole prompt. Was the engine started with "
            "--kv-events-config, and did it get requests meanwhile? A prompt is whole if its "
            "first block was not cached, as that of a shared system prompt is: --against URL "
            "sends requests whose blocks are all new",
        )
    return report


def _watched(arguments: argparse.Namespace, model: ResolvedModel, name: str) -> Report:
    """The report of how the prompts of others are hashed."""
    from mmroute.lab.parity.events.live import watched  # pyzmq, an extra

    batches = watched(arguments.events, arguments.seconds)
    again = partial(compare_watched, batches=batches)
    findings = tuple(again(model))
    judge = judge_of(model)
    told = judge.told_by_events(model, Chains().enter(batches))
    proposed = proposal(model, findings, again, judge.changes, told=told)
    return Report(model, name, findings, None, proposed, (_WATCHED,))


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
    judge = judge_of(model)
    told = judge.told_by_events(model, Chains().enter(batches))
    return Report(
        model,
        name,
        tuple(findings),
        running,
        proposal(model, findings, again, judge.changes, running=running, told=told),
        (unheard,) if unheard and not batches else (),
    )


def _keeping(items: Iterable[Announced], into: list[Announced]) -> Iterator[Announced]:
    for item in items:
        into.append(item)
        yield item


def _sent(
    arguments: argparse.Namespace, model: ResolvedModel
) -> tuple[RunningEngine | None, Iterable[Announced]]:
    """Send the cases to an engine; the engine, and the blocks that it announces."""
    from mmroute.lab.parity.events.live import announced_by  # pyzmq, an extra
    from mmroute.lab.parity.oracles.http import HttpOracle  # loads httpcore

    oracle = HttpOracle(
        arguments.against, served_model=arguments.served_model, api_key=arguments.api_key
    )
    return oracle.running, announced_by(
        arguments.events, own_cases(arguments, model), oracle.generate
    )


def print_report(arguments: argparse.Namespace, report: Report) -> int:
    """Print the report, and return the exit status."""
    if arguments.json:
        print(json.dumps(as_json(report), ensure_ascii=False))
    else:
        print("\n".join(as_lines(report)))
    if report.warning:
        say(f"warning: {report.warning}")
        if arguments.strict:
            return _EXIT_MISMATCH
    return {True: 0, False: _EXIT_MISMATCH, None: EXIT_UNDECIDED}[report.parity]


def cases_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the requests to compare."""
    parser.add_argument(
        "--cases", metavar="FILE", type=Path, help="your own requests, as for `mmroute tokens`"
    )


def own_cases(
    arguments: argparse.Namespace,
    model: ResolvedModel,
    built_in: Callable[[ResolvedModel], list[Case]] = built_in_cases,
) -> list[Case]:
    """The user's own cases, or the built-in ones."""
    return built_in(model) if arguments.cases is None else cases_from_file(arguments.cases)


def resolved(arguments: argparse.Namespace) -> ResolvedModel:
    """The model with the settings of the arguments."""
    settings = EngineSettings.from_args(arguments.engine_args or "", config=arguments.engine_config)
    return load_normalizer(arguments, settings).model
