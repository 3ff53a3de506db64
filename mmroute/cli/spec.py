"""``mmroute spec check`` and ``mmroute spec new``: check or propose a family spec."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Final

from mmroute.cli.arguments import Commands, add_command, output_file
from mmroute.cli.output import print_table
from mmroute.model_directory import find_model
from mmroute.parity.oracles import find_oracle
from mmroute.parity.oracles.vectors import VectorsOracle
from mmroute.specs.check import check_spec
from mmroute.specs.proposal import GOOD, propose, size_cases

_EXIT_FAILED: Final = 1
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
_CHECK_EPILOG = """\
exit status: 0 valid; 1 not; 2 bad usage
"""


def add_spec(commands: Commands) -> None:
    """Add the command."""
    spec = commands.add_parser("spec", help="work on family specs")
    spec_commands = spec.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = add_command(
        spec_commands, "check", "find everything that is wrong with a family spec", _check,
        epilog=_CHECK_EPILOG,
    )  # fmt: skip
    check.add_argument("file", metavar="FILE", type=Path, help="a family spec, *.toml")
    check.add_argument("--model", metavar="DIR", help="resolve this model with it, too")
    new = add_command(
        spec_commands, "new", "propose a family spec for a model nobody knows, by asking an engine",
        _new, epilog=_NEW_EPILOG,
    )  # fmt: skip
    new.add_argument("model", metavar="DIR", help="model directory")
    new.add_argument(
        "--against",
        metavar="ORACLE",
        default="vllm",
        help="the oracle to ask, as for `mmroute validate` (default: vllm)",
    )
    new.add_argument(
        "--out",
        metavar="FILE",
        type=output_file,
        help="the file for the best spec (default: it is printed)",
    )
    new.add_argument(
        "--trust-remote-code", action="store_true", help="let code run that comes with the model"
    )


def _new(arguments: argparse.Namespace) -> int:
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
        return 0 if best.good else _EXIT_FAILED
    fitting = [c for c in proposal.candidates if not c.problem]
    rows = [(c.family, c.grid or "text only", f"{c.equal} of {c.decided}") for c in fitting]
    print_table([("FAMILY", "GRID", "EQUAL"), *rows])
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
    if proposal.written:
        print("\nIn the place of an image the engine writes (TOKEN*N: N times the token):")
    for (width, height), text in proposal.written.items():
        print(f"  {width}x{height}: {text}")
    return _EXIT_FAILED


def _check(arguments: argparse.Namespace) -> int:
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
    return 0 if report.valid else _EXIT_FAILED
