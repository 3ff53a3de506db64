"""``mmroute doctor`` and ``mmroute spec check``: check a model or a family spec."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Final

from mmroute.cli.arguments import Commands, add_command, output_file
from mmroute.cli.engine_options import engine_settings, model_arguments
from mmroute.cli.output import print_table
from mmroute.engines.known import behind_frontend, find_engine
from mmroute.errors import InexactError
from mmroute.health.self_check import Check, HealthReport, load_and_check
from mmroute.model_directory import find_model
from mmroute.parity.oracles import find_oracle
from mmroute.parity.oracles.vectors import VectorsOracle, check_recorded
from mmroute.specs.check import check_spec
from mmroute.specs.proposal import GOOD, propose, size_cases

_EXIT_UNHEALTHY: Final = 1
_DOCTOR_EPILOG = """\
exit status: 0 healthy; 1 not healthy; 2 bad usage. With --strict a model is not healthy either with
a warning, or where block hashes are guessed or missing.
"""
_DECISIONS = """
What you must decide, and prove with `mmroute validate`:
- the tokenizer: does the engine keep tokenizer.json, or which class builds it anew?
- [tokens] and targets of {tables}: `mmroute spec check FILE --model DIR` shows the IDs.
- the grid of {tables}: many requests agree; limits and extremes may still differ.
- accepts and max_items of {tables}: they are those of {family}, and were not asked.
- [checked]: name the engine versions once every difference is explained."""
_NEW_EPILOG = f"""\
Each known family's spec is tried on the model's files, and compared with the engine on many sizes,
or on the requests of a vector file.

exit status: 0 a family answers at least {GOOD:.0%} of the requests like this model; 1 none does,
and nothing is written; 2 bad usage
"""
_SPEC_EPILOG = """\
exit status: 0 valid; 1 not; 2 bad usage
"""


def add_doctor(commands: Commands) -> None:
    """Add the command."""
    doctor = add_command(
        commands,
        "doctor",
        "check a model as it is installed here: files, versions, special tokens, a few requests",
        _doctor,
        epilog=_DOCTOR_EPILOG,
    )
    model_arguments(doctor)
    doctor.add_argument(
        "--vectors", metavar="FILE", type=Path, help="compare a few of these as well"
    )
    doctor.add_argument(
        "--strict",
        action="store_true",
        help="a warning, and guessed or missing block hashes, are not healthy",
    )


def add_spec(commands: Commands) -> None:
    """Add the command."""
    spec = commands.add_parser("spec", help="work on family specs")
    spec_commands = spec.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = add_command(
        spec_commands, "check", "find everything that is wrong with a family spec", _spec_check,
        epilog=_SPEC_EPILOG,
    )  # fmt: skip
    check.add_argument("file", metavar="FILE", type=Path, help="a family spec, *.toml")
    check.add_argument("--model", metavar="DIR", help="resolve this model with it, too")
    new = add_command(
        spec_commands, "new", "propose a family spec for a model nobody knows, by asking an engine",
        _spec_new, epilog=_NEW_EPILOG,
    )  # fmt: skip
    new.add_argument("model", metavar="DIR", help="model directory")
    new.add_argument(
        "--against", metavar="ORACLE", default="vllm", help="the oracle to ask (default: vllm)"
    )
    new.add_argument("--out", metavar="FILE", type=output_file, help="the file for the best spec")
    new.add_argument(
        "--trust-remote-code", action="store_true", help="let code run that comes with the model"
    )


def _spec_new(arguments: argparse.Namespace) -> int:
    files = find_model(arguments.model)
    oracle = find_oracle(
        arguments.against, arguments.model, trust_remote_code=arguments.trust_remote_code
    )
    cases = oracle.cases() if isinstance(oracle, VectorsOracle) else size_cases()
    proposal = propose(files, oracle, cases)
    best = proposal.best
    if arguments.out is not None and best.good:
        arguments.out.write_text(best.text, encoding="utf-8")
    if arguments.json:
        listed = [dataclasses.asdict(c) for c in proposal.candidates]
        print(json.dumps(listed, ensure_ascii=False))
        return 0 if best.good else _EXIT_UNHEALTHY
    fitting = [c for c in proposal.candidates if not c.problem]
    rows = [(c.family, c.grid or "text only", f"{c.equal} of {c.decided}") for c in fitting]
    print_table([("FAMILY", "GEOMETRY", "EQUAL"), *rows])
    others = len(proposal.candidates) - len(fitting)
    print(f"\n{others} other families do not fit the model's files; --json says why.")
    if best.good:
        if arguments.out is None:
            print(f"\n{best.text}")
        tables = " and ".join(f"[{modality}]" for modality in best.compared) or "items"
        print(_DECISIONS.format(tables=tables, family=best.family))
        if best.uncompared:
            print(
                f"- the rest: the engine answered no request with {' or '.join(best.uncompared)}."
            )
        return 0
    known = "no family fits the files" if best.problem else f"{best.family} agrees best"
    print(f"\nno good proposal: {known}; {GOOD:.0%} of the requests must be answered alike.")
    print(f"{proposal.missing[:1].upper()}{proposal.missing[1:]}.")
    return _EXIT_UNHEALTHY


def _doctor(arguments: argparse.Namespace) -> int:
    vectors = arguments.vectors
    further = [] if vectors is None else [partial(check_recorded, path=vectors)]
    report = load_and_check(
        arguments.model,
        *further,
        backend=arguments.backend,
        model_id=arguments.model_id,
        revision=arguments.revision,
        engine_settings=engine_settings(arguments),
    )
    if arguments.engine is not None and report.family is not None:
        report = _with_engine(report, arguments)
    wrong = report.verdict(strict=arguments.strict)
    if arguments.json:
        print(json.dumps(report.as_json() | {"healthy": not wrong}, ensure_ascii=False))
    else:
        rows = [("CHECK", "", "DETAIL")]
        rows += [(c.name, "ok" if c.ok else "FAILED", c.detail) for c in report.checks]
        print_table(rows)
        for warning in report.warnings:
            print(f"warning: {warning}")
        for guess in report.guesses:
            print(f"hashes: {guess}")
        print(f"not healthy: {wrong}" if wrong else "healthy")
    return _EXIT_UNHEALTHY if wrong else 0


def _with_engine(report: HealthReport, arguments: argparse.Namespace) -> HealthReport:
    """The report with the version of a running engine, and a warning if its rules differ."""
    from mmroute.net.remote import Remote
    from mmroute.net.transport import Transport  # loads httpcore
    from mmroute.remote.server_info import ask_engine

    warning = ""
    try:
        with contextlib.closing(Transport(Remote(arguments.engine, arguments.api_key))) as engine:
            running = ask_engine(engine)
        check = Check("running_engine", ok=True, detail=str(running))
        frontend = engine_settings(arguments).frontend
        warning = running.warning(behind_frontend(find_engine(arguments.backend), frontend))
    except (InexactError, ValueError) as error:
        check = Check("running_engine", ok=False, detail=str(error))
    warnings = (*report.warnings, warning) if warning else report.warnings
    return dataclasses.replace(report, checks=(*report.checks, check), warnings=warnings)


def _spec_check(arguments: argparse.Namespace) -> int:
    report = check_spec(arguments.file, model=arguments.model)
    if arguments.json:
        print(json.dumps(report.as_json(), ensure_ascii=False))
    elif not report.valid:
        for problem in report.problems:
            print(problem)
    else:
        print(f"{arguments.file} is valid")
        if report.resolved is not None:
            rows = [("VALUE", "IS", "FROM")]
            rows += [(o.name, json.dumps(o.value), o.source) for o in report.resolved.origins]
            print_table(rows)
    return 0 if report.valid else _EXIT_UNHEALTHY
