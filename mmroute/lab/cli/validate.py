"""``mmroute validate``: compare mmroute's answers with an engine's."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from mmroute.cli.arguments import Commands, add_command, output_file
from mmroute.cli.engine_options import load_normalizer, model_arguments
from mmroute.cli.output import failed, say, with_progress
from mmroute.errors import BlockSizeWarning, ModelIdWarning, RandomSeedWarning
from mmroute.health.self_check import check_model
from mmroute.lab.cli.validate_events import add_events, events_report, wrong_events
from mmroute.lab.parity.cases import Case
from mmroute.lab.parity.causes import proposal
from mmroute.lab.parity.comparison import Finding, Verdict, compare, compare_again
from mmroute.lab.parity.oracles import find_oracle
from mmroute.lab.parity.oracles.vectors import VectorsOracle, write_vectors
from mmroute.lab.parity.report import Report, as_json, as_lines, report_of
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
    add_events(validate)
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
            report = events_report(arguments, own_cases)
        return print_report(arguments, report)
    return _compared(arguments)


def _wrong_usage(arguments: argparse.Namespace) -> str:
    """The error in the arguments; empty if there is none."""
    if arguments.events is not None:
        return wrong_events(arguments)
    if arguments.against is None:
        return "give the oracle to compare with: --against ORACLE, or --events"
    if arguments.cases is not None and Path(arguments.against).is_file():
        return "a file of vectors brings its own requests: leave out --cases"
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
    report = report_of(
        normalizer.model,
        f"{oracle.name} {oracle.version}".strip(),
        compared,
        oracle.running,
        proposal=proposal(
            normalizer.model,
            compared,
            partial(compare_again, findings=compared),
            running=oracle.running,
        ),
        notes=_uncompared(compared),
        modalities=tuple(normalizer.model.media),
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
