"""Ask vLLM and mmroute about directories that differ from a known one by one field.

Run it where vLLM is installed, from the repository's root:

    python tools/generate_fields.py --out fields.jsonl [MODEL ...]

MODEL is a small model of the tests or a model directory; all small models by default. Each field of
its files is dropped, made null and changed; fields that its classes or its spec know are added;
files and chat templates are moved to the other places where they may stand. Every such directory is
asked some requests, of vLLM's own code and of mmroute, and gets the first verdict of this list that
fits one:

    crashed     mmroute raised an error that is no refusal
    silent      mmroute's answer is exact, and differs from vLLM's
    loaded      mmroute loads the model, and vLLM does not
    accepted    mmroute answers a request that vLLM refuses
    refused     vLLM answers a request, and mmroute does not
    right       both give the same answers, at least one of them with token IDs
    neither     neither of the two answers a request, or loads the model
    undecided   vLLM took too long or too much memory, or needs a package that is missing

The file gets one line for each directory as soon as it is known. A directory that has a line is not
asked again. The number of each verdict goes to standard error, as do requests on which the two
disagree about the model as it is, which are not asked again. Half a second a directory is usual.
Some small models need the code of their processor (--code), and vLLM reads audio with packages of
its own extra (soundfile, av).

Directories that decide a rule are kept with vLLM's answers: ``--vectors LINES`` asks again about
those that the lines of a file name, and writes lines as in
``tests/core/conformance/vectors/changed/fields.jsonl``.
"""

from __future__ import annotations

import argparse
import collections
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from engine import prepare, refuse_other_versions
from small_models import ALL_MODELS, media_model, write_items

from mmroute import Normalizer
from mmroute.lab.specs.field_changes import READ, TEMPLATE, Change
from mmroute.lab.specs.field_checks import AGREED, FieldChecks, in_child, prepare_vllm
from mmroute.model.resolved import ResolvedModel


def main() -> None:
    """Ask about all directories that have no line yet."""
    arguments = _parser().parse_args()
    done, kept = _keys(arguments.out), _kept(arguments.vectors)
    refuse_other_versions()
    with tempfile.TemporaryDirectory() as root:
        prepare_vllm(Path(root) / "modules")
        for model in arguments.models or sorted(kept) or ALL_MODELS:
            name = Path(model).name
            ask = partial(_ask, model, arguments, Path(root), done[name], kept[name])
            in_child(ask)  # no model sees what vLLM and transformers keep of another


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(params=None)  # the embedded model has no file to change
    parser.add_argument("models", metavar="MODEL", nargs="*")
    add = parser.add_argument
    add("--out", type=Path, required=True, help="file of the answers, JSON Lines")
    add("--code", type=Path, default=Path(), help="directory of code: a folder for a model")
    add("--vectors", type=Path, help="lines of directories whose answers are written as vectors")
    add("--file", action="append", choices=READ, help="change only this file; may be repeated")
    add("--seed", type=int, default=0, help="draws the other values (default: 0)")
    add("--limit", type=int, default=30, help="seconds for one directory (default: 30)")
    add("--memory", type=int, default=6, help="GiB for one directory (default: 6)")
    return parser


def _ask(
    model: str, arguments: argparse.Namespace, root: Path, done: set[str], kept: list[Change]
) -> None:
    """Write a line for each change of a model that has none. It has this process for itself.

    If there are some that are `kept`, only these are asked about, and the lines are vectors.
    """
    name = Path(model).name
    root = Path(tempfile.mkdtemp(dir=root))
    base = root / "base" / name
    if Path(model).is_dir():
        shutil.copytree(model, base)
    else:
        prepare(model, base, arguments, media_model(model))
    write_items(_resolved(base), base / TEMPLATE)
    trust = any(base.glob("*.py"))
    checks = FieldChecks(
        base, _resolved,
        trust_remote_code=trust, files=arguments.file or READ, seed=arguments.seed,
    )  # fmt: skip
    unchanged = _line(name, Change("", "", "as it is", {}))
    if _key(unchanged) not in done and not kept:
        _append(arguments.out, unchanged | checks.unchanged)
    if checks.unchanged["verdict"] not in AGREED:
        told = json.dumps(checks.unchanged)
        print(f"{name}, as it is: {told}", file=sys.stderr, flush=True)
    left = [one for one in kept or checks.changes if _key(_line(name, one)) not in done]
    counts = collections.Counter[str]()
    answers = checks.answers(left, seconds=arguments.limit, gibibytes=arguments.memory)
    for change, answer in answers:
        line = _line(name, change)
        _append(arguments.out, line | (_vector(change, answer) if kept else answer))
        counts[answer["verdict"]] += 1
    print(f"{name}: {dict(counts)}", file=sys.stderr, flush=True)


def _vector(change: Change, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The changed files, and what vLLM answers: tokens, null for refusals, and their digest."""
    told = {name: answer for name, (_, answer, _) in answer["requests"].items()}
    tokens = {name: one if isinstance(one, int) else None for name, one in told.items()}
    return {"files": change.files, "tokens": tokens, "prompts": answer.get("prompts")}


def _resolved(directory: Path) -> ResolvedModel:
    return Normalizer.from_pretrained(directory).model


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(line)}\n")


def _line(model: str, change: Change) -> dict[str, Any]:
    return {"model": model, "file": change.file, "field": change.field, "what": change.what}


def _key(case: Mapping[str, Any]) -> str:
    return "|".join((case["file"], case["field"], case["what"]))


def _keys(path: Path | None) -> dict[str, set[str]]:
    """Model -> the keys of its lines in a file."""
    keys: dict[str, set[str]] = collections.defaultdict(set)
    for case in _cases(path):
        keys[case["model"]].add(_key(case))
    return keys


def _kept(path: Path | None) -> dict[str, list[Change]]:
    """Model -> the changes that the lines of a file name."""
    kept: dict[str, list[Change]] = collections.defaultdict(list)
    for case in _cases(path):
        kept[case["model"]].append(Change(case["file"], case["field"], case["what"], case["files"]))
    return kept


def _cases(path: Path | None) -> Iterator[Any]:
    if path is not None and path.is_file():
        yield from map(json.loads, path.open(encoding="utf-8"))


if __name__ == "__main__":
    main()
