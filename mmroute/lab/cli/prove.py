"""``mmroute prove``: start an engine on a shrunken model, and compare what it does with mmroute."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mmroute.cli.arguments import Commands, add_command, output_file, require_extra
from mmroute.cli.engine_options import adopted_backend, model_arguments
from mmroute.cli.output import say, show_progress
from mmroute.engine import find_engine
from mmroute.errors import quoted
from mmroute.lab.cli.validate import (
    EXIT_UNDECIDED,
    cases_argument,
    compared,
    own_cases,
    print_report,
    resolved,
)
from mmroute.lab.engines import PROVERS, Prover, judge_of
from mmroute.lab.engines.starting import Started
from mmroute.lab.parity.cases import Case, Served, UndecidedError
from mmroute.lab.parity.comparison import our_outcome
from mmroute.lab.parity.oracles.common import OracleError
from mmroute.lab.parity.report import Report
from mmroute.lab.parity.suite import proof_cases
from mmroute.model.resolved import ResolvedModel

_UNHEARD: Final = (
    "The engine announced no block, so only token IDs were compared: no prompt fills a block, or "
    "the engine does not cache prefixes: vLLM on a CPU for MLA models, SGLang for models without a "
    "class of its own."
)
_SAME_SETTINGS: Final = (
    "Both sides have the same settings, so no setting is the cause of a difference: mmroute's spec "
    "of the family {family}, or a rule, is another one than the engine's. A setting that is named "
    "below shows the value by which they would agree."
)
_EPILOG = """\
The engine gets a copy of the model directory with one or two narrow layers and random weights.
Token IDs, sizes of images, windows, kinds of layers and block sizes are the model's. It needs
no GPU and no weights. The first run makes an environment with the engine, with pip and its
configuration.

Requests are sent one after the other. These are compared: the status, the token IDs, each block
that the engine stores (hash, parent, tokens, extra keys, group), and the tokens that it takes from
its cache.

exit status: 0 all equal; 1 a difference; 2 bad usage; 3 nothing could be decided, no block was
announced, or the engine did not start or ended by itself
"""


def add_prove(commands: Commands) -> None:
    """Add the command."""
    prove = add_command(
        commands,
        "prove",
        "start a whole engine on this machine, and compare its answers and KV events",
        _prove,
        epilog=_EPILOG,
    )
    prove.set_defaults(exit_of_failure=EXIT_UNDECIDED)
    model_arguments(prove, asks=False)
    prove.add_argument(
        "--router-args",
        metavar="ARGS",
        help="what the router is told of the engine, as --engine-args (default: the engine's own)",
    )
    prove.add_argument(
        "--version", help="the version of the engine to run (default: the newest that is known to)"
    )
    prove.add_argument(
        "--python",
        metavar="PATH",
        type=Path,
        help="the Python of an environment that has the engine, also for a GPU",
    )
    cases_argument(prove)
    prove.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        default=300.0,
        help="how long to wait for the engine's start, and for each answer (default: %(default)g)",
    )
    prove.add_argument(
        "--record", metavar="FILE", type=output_file, help="keep the requests and events"
    )
    prove.add_argument(
        "--log", metavar="FILE", type=output_file, help="keep what the engine writes"
    )
    prove.set_defaults(strict=False)


def _prove(arguments: argparse.Namespace) -> int:
    require_extra("events", "zmq")
    prover = _prover(arguments.backend)
    given = prover.parse_command(arguments.engine_args, config=arguments.engine_config)
    arguments.engine_config = None
    resolved(arguments)  # bad usage is told before an engine is made
    python = arguments.python or prover.engine_environment(arguments.version or prover.NEWEST, say)
    with tempfile.TemporaryDirectory(prefix="mmroute-prove-") as directory:
        return _proved(arguments, prover, given, python, Path(directory))


def _prover(backend: str) -> Prover:
    engine = backend.partition("=")[0]
    if engine not in PROVERS.entries:
        known = ", ".join(PROVERS.entries)
        raise OracleError(f"mmroute starts no engine {quoted(engine)} by itself, only {known}")
    found: Prover = PROVERS.find(engine)
    return found


def _proved(
    arguments: argparse.Namespace, prover: Prover, given: Any, python: Path, directory: Path
) -> int:
    version = prover.installed_version(python)
    started = prover.start_engine(
        arguments.model,
        given,
        python,
        directory,
        revision=arguments.revision,
        quickly=arguments.python is None,
        say=say,
    )
    engine, notes = started.engine, list(started.notes)
    with contextlib.ExitStack() as at_end, engine:
        if arguments.log is not None:
            at_end.callback(shutil.copy, engine.log, arguments.log)
        say(f"starts {prover.LABEL} {version}")
        took = engine.wait(arguments.wait, lambda seconds: show_progress(f"{seconds:.0f} s"))
        show_progress("")
        say(f"it is ready after {took:.0f} s")
        report = _compared(arguments, prover, started)
        if engine.ended:
            notes.append(f"The engine ended by itself. {engine.log_end()}")
    oracle = f"{prover.LABEL} {version}, running"
    return print_report(arguments, replace(report, oracle=oracle, notes=(*notes, *report.notes)))


def _compared(arguments: argparse.Namespace, prover: Prover, started: Started) -> Report:
    """The report of what a running engine answers and announces."""
    from mmroute.lab.parity.events.live import announced_by  # pyzmq, an extra
    from mmroute.lab.parity.oracles.http import HttpOracle  # loads httpcore

    engine = started.engine
    oracle = HttpOracle(engine.url, timeout=arguments.wait)
    unanswered: list[str] = []

    def generate(case: Case) -> Served:
        began = time.monotonic()
        try:
            return oracle.generate(case)
        except UndecidedError:
            if time.monotonic() - began >= arguments.wait:
                unanswered.append(case.id)
            raise

    arguments.backend = adopted_backend(oracle.running, arguments.backend)
    arguments.accept_version = find_engine(arguments.backend).release.version  # this proves it
    arguments.engine_args = arguments.router_args or prover.adopted(started)
    model = resolved(arguments)
    asked = own_cases(arguments, model, proof_cases)
    unsent = {case.id for case in asked if _is_harmful(model, case)}
    cases = itertools.takewhile(
        lambda _: not (engine.ended or unanswered), (c for c in asked if c.id not in unsent)
    )
    report = compared(
        arguments,
        model,
        engine.url,
        announced_by(started.events, cases, generate, salted=False),
        alone=True,
        running=oracle.running,
        unheard=_UNHEARD,
    )
    notes = [
        f"The engine did not answer {case} within {arguments.wait:g} s (--wait), and was ended. "
        f"Leave out options one by one, or that request. {engine.log_end()}"
        for case in unanswered
    ]
    if unsent:
        notes.append(
            f"{prover.LABEL} ends or hangs at some requests of the kind of these, which mmroute "
            f"refuses. They were not sent: {', '.join(sorted(unsent))}."
        )
    finished = not (unanswered or engine.ended)
    if finished:
        notes += report.notes
    if report.parity is False and not arguments.router_args:
        notes.append(_SAME_SETTINGS.format(family=model.family.family))
    return replace(report, notes=tuple(notes), finished=finished)


def _is_harmful(model: ResolvedModel, case: Case) -> bool:
    """Whether mmroute refuses a request for a reason for which the engine may end or hang."""
    reasons = judge_of(model).HARMFUL
    refusal = our_outcome(model, case).refusal if reasons else None
    return refusal is not None and refusal.partition(":")[0] in reasons
