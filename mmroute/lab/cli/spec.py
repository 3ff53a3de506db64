"""``mmroute spec check`` and ``mmroute spec new``: check or propose a family spec."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from mmroute.cli.arguments import Commands, add_command, output_file
from mmroute.cli.output import failed, print_table, say, with_progress
from mmroute.families.spec import FamilySpec
from mmroute.lab.parity.oracles import find_oracle
from mmroute.lab.parity.oracles.vectors import VectorsOracle
from mmroute.lab.specs.check import check_spec, resolve_by
from mmroute.lab.specs.field_checks import (
    AGREED,
    WRONG,
    FieldChecks,
    FieldResult,
    field_results,
    prepare_vllm,
)
from mmroute.lab.specs.proposal import GOOD, propose, size_cases
from mmroute.model_directory import find_model

_EXIT_FAILED: Final = 1
_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.onnx")
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
With --oracle each field of the model's files is dropped, made null and changed, one at a time, and
vLLM, which must be installed here, and mmroute are asked about every such directory: two a second
on one core. RESULT of a field is
  silent      mmroute's answer is exact, and not vLLM's
  accepted    mmroute answers a request that vLLM refuses
  crashed     mmroute raised an error that is no refusal
  loaded      mmroute loads the model, and vLLM does not
  refused     vLLM answers, and mmroute does not
  undecided   vLLM took too long or too much memory, or needs a package
  unanswered  neither of the two answers
  followed    the prompts change, and are the same
  idle        the prompts do not change

exit status: 0 valid, and no field is silent, accepted or crashed; 1 not; 2 bad usage
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
    check.add_argument(
        "--oracle",
        action="store_true",
        help="ask vLLM about each field of the files of --model, which must be a directory",
    )
    check.add_argument(
        "--trust-remote-code", action="store_true", help="let code run that comes with the model"
    )
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
    if arguments.out is not None and arguments.out.exists():
        return failed(arguments, f"--out: {arguments.out} exists; give another file")
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
    if arguments.oracle and not (arguments.model and Path(arguments.model).is_dir()):
        return failed(arguments, "--oracle changes the files of a directory: give --model DIR")
    report = check_spec(arguments.file, model=arguments.model)
    results = None
    if arguments.oracle and report.spec is not None and report.valid:
        results = _ask_vllm(report.spec, arguments)
    if arguments.json:
        told = {} if results is None else {"fields": [dataclasses.asdict(one) for one in results]}
        print(json.dumps(report.as_json() | told, ensure_ascii=False))
    elif not report.valid:
        for problem in report.problems:
            print(problem)
    else:
        print(f"{arguments.file} is valid")
        if results is not None:
            _print_results(results)
        elif report.resolved is not None:
            rows = [("VALUE", "IS", "FROM")]
            rows += [(o.name, json.dumps(o.value), o.source) for o in report.resolved.origins]
            print_table(rows)
    wrong = any(one.result in WRONG for one in results or ())
    return 0 if report.valid and not wrong else _EXIT_FAILED


def _ask_vllm(spec: FamilySpec, arguments: argparse.Namespace) -> list[FieldResult]:
    """What the spec does with each field of the model's files."""
    with tempfile.TemporaryDirectory() as root:
        prepare_vllm(Path(root) / "modules")
        base = Path(root) / "base" / Path(arguments.model).resolve().name
        shutil.copytree(arguments.model, base, ignore=shutil.ignore_patterns(*_WEIGHTS))
        checks = FieldChecks(
            base, partial(resolve_by, spec), trust_remote_code=arguments.trust_remote_code
        )
        for name, (verdict, theirs, ours) in checks.unchanged["requests"].items():
            if verdict not in AGREED:
                say(f"not asked, as the two differ on the model as it is: {name}: "
                    f"vLLM {theirs}, mmroute {ours}")  # fmt: skip
        answers = with_progress(
            checks.answers(checks.changes), "directories",
            total=len(checks.changes), watched=sys.stderr.isatty(),
        )  # fmt: skip
        return field_results(checks.unchanged, answers)


def _print_results(results: Sequence[FieldResult]) -> None:
    rows = [("FIELD", "RESULT", "CHANGES")]
    for one in results:
        differs = f" ({one.differs})" if one.differs else ""
        rows.append((one.place, one.result, "; ".join(one.changes) + differs))
    print_table(rows)
    counts = collections.Counter(one.result for one in results)
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
