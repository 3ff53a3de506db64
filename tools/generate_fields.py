"""Ask vLLM and mmroute about directories that differ from a known one by one field.

Run it where vLLM is installed, from the repository's root:

    python tools/generate_fields.py --out fields.jsonl [MODEL ...]

MODEL is a small model of the tests or a model directory; all small models by default. Each field of
its files is dropped, made null and changed; fields that its classes know are added; files and chat
templates are moved to the other places where they may stand. Every such directory is asked some
requests, of vLLM's own code and of mmroute, and gets the first verdict of this list that fits one:

    crashed     mmroute raised an error that is no refusal
    silent      mmroute's answer is exact, and differs from vLLM's
    loaded      mmroute loads the model, and vLLM does not
    accepted    mmroute answers a request that vLLM refuses
    refused     vLLM answers a request, and mmroute does not
    right       both give the same answers, at least one of them with token IDs
    neither     neither of the two answers a request, or loads the model
    undecided   vLLM took too long or too much memory, or needs a package that is missing

The file gets one line for each directory as soon as it is known. A directory that has a line is not
asked again. A table stands on standard output at the end; the progress goes to standard error.
Half a second a directory is usual. Some small models need the code of their processor (--code), and
vLLM reads audio with packages of its own extra (soundfile, av). Requests on which the two disagree
about the model as it is are named on standard error, and are not asked again.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from engine import prepare, refuse_other_versions
from field_answers import (
    VERDICTS,
    fields_read,
    judged,
    known_fields,
    oracle_of,
    requests_of,
    write_items,
)
from field_changes import READ, TEMPLATE, Change, changes
from small_families import ALL_MODELS, media_model

from mmroute import Normalizer

_AGREED: Final = ("right", "neither")


def main() -> None:
    """Ask about all directories that have no line yet, and print the table."""
    arguments = _parser().parse_args()
    done: dict[str, set[str]] = collections.defaultdict(set)
    for case in _cases(arguments.out):
        done[case["model"]].add(_key(case))
    refuse_other_versions()
    with tempfile.TemporaryDirectory() as root:
        os.environ.update(
            OMP_NUM_THREADS="1",
            TOKENIZERS_PARALLELISM="false",
            HF_HUB_OFFLINE="1",
            HF_MODULES_CACHE=f"{root}/modules",
            VLLM_LOGGING_LEVEL="CRITICAL",
            VLLM_TARGET_DEVICE="cpu",
        )
        logging.disable()
        # Each process has what is imported here.
        import vllm.entrypoints.openai.chat_completion.protocol
        import vllm.renderers.online_renderer
        import vllm.v1.engine.input_processor  # noqa: F401
        from transformers import PretrainedConfig
        from vllm.model_executor.models import registry

        registry._run_in_subprocess = lambda call: call()  # it is a child of its own anyway
        # It writes logs that nobody reads, in a sixth of the time.
        PretrainedConfig.__repr__ = object.__repr__
        for model in arguments.models or ALL_MODELS:
            # No model sees what vLLM and transformers keep of another.
            _in_child(partial(_ask, model, arguments, Path(root), done[Path(model).name]))
    table = _table(_cases(arguments.out))
    print(json.dumps(table) if arguments.json else _text(table))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(params=None)  # the embedded model has no file to change
    parser.add_argument("models", metavar="MODEL", nargs="*")
    add = parser.add_argument
    add("--out", type=Path, required=True, help="file of the answers, JSON Lines")
    add("--code", type=Path, default=Path(), help="directory of code: a folder for a model")
    add("--file", action="append", choices=READ, help="change only this file; may be repeated")
    add("--seed", type=int, default=0, help="draws the other values (default: 0)")
    add("--limit", type=int, default=30, help="seconds for one directory (default: 30)")
    add("--memory", type=int, default=6, help="GiB for one directory (default: 6)")
    add("--record", type=Path, help="file of the fields that vLLM reads while it answers")
    add("--json", action="store_true", help="print the table as JSON")
    return parser


def _ask(model: str, arguments: argparse.Namespace, root: Path, done: set[str]) -> None:
    """Write a line for each change of a model that has none. It has this process for itself."""
    name = Path(model).name
    root = Path(tempfile.mkdtemp(dir=root))
    base = root / "base" / name
    if Path(model).is_dir():
        shutil.copytree(model, base)
    else:
        prepare(model, base, arguments, media_model(model))
    ours = Normalizer.from_pretrained(base).model
    write_items(ours, base / TEMPLATE)
    files = {file: _read(base / file) for file in READ if (base / file).is_file()}
    requests = [*requests_of(ours)]
    if arguments.record is not None:
        read = _in_child(partial(fields_read, base, requests), arguments)
        _append(arguments.record, {"model": name, "read": read})
    answer = judged(base, requests)  # here, so that children need not import what it takes
    # What the two disagree on without a change, no change is blamed for.
    agreed = {of for of, (verdict, *_) in answer["requests"].items() if verdict in _AGREED}
    requests = [one for one in requests if one.id in agreed]
    unchanged = _line(name, Change("", "", "as it is", {}))
    if _key(unchanged) not in done:
        _append(arguments.out, unchanged | answer)
    if answer["verdict"] not in _AGREED:
        print(f"{name}, as it is: {json.dumps(answer)}", file=sys.stderr, flush=True)
    if not requests:
        return
    found = changes(files, known_fields(oracle_of(base), files), arguments.seed)
    wanted = [one for one in found if one.file in (arguments.file or READ)]
    left = [one for one in wanted if _key(_line(name, one)) not in done]
    gc.collect()
    gc.freeze()  # children share what is not written
    begun, counts = time.monotonic(), collections.Counter[str]()
    for number, change in enumerate(left, 1):
        directory = root / str(number) / name
        _lay(base, directory, change.files)
        answer = _in_child(partial(judged, directory, requests), arguments)
        answer = answer or {"verdict": "undecided", "requests": {}}
        shutil.rmtree(directory.parent)
        _append(arguments.out, _line(name, change) | answer)
        counts[answer["verdict"]] += 1
        rate = number / (time.monotonic() - begun)
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        told = f"{number} of {len(left)} ({len(done)} before), {rate:.1f}/s: {told}"
        end = "\n" if number == len(left) else "\r"
        print(f"{name}: {told}", end=end, file=sys.stderr, flush=True)


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(line)}\n")


def _line(model: str, change: Change) -> dict[str, Any]:
    return {"model": model, "file": change.file, "field": change.field, "what": change.what}


def _in_child(call: Callable[[], Any], limits: argparse.Namespace | None = None) -> Any:
    """What a function returns in a child process; None if the process did not live to say it."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(readable)
            if limits is not None:
                gc.disable()
                signal.alarm(limits.limit)  # ends the process
                resource.setrlimit(resource.RLIMIT_AS, (limits.memory << 30,) * 2)
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 1)
                os.dup2(nowhere, 2)
            result = json.dumps(call()).encode()
            with os.fdopen(writable, "wb") as pipe:
                pipe.write(result)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else None


def _read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else text


def _lay(base: Path, directory: Path, changed: Mapping[str, Any]) -> None:
    """A directory with the files of another, except those that are changed."""
    directory.mkdir(parents=True)
    for file in base.rglob("*"):
        name = file.relative_to(base)
        if file.is_file() and str(name) not in changed:
            (directory / name).parent.mkdir(exist_ok=True)
            os.link(file, directory / name)
    for changed_name, content in changed.items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (directory / changed_name).write_text(text, encoding="utf-8")


def _key(case: Mapping[str, Any]) -> str:
    return "|".join((case["file"], case["field"], case["what"]))


def _cases(path: Path) -> Iterator[Any]:
    if path.is_file():
        yield from map(json.loads, path.open(encoding="utf-8"))


def _table(cases: Iterator[Any]) -> dict[str, dict[str, int]]:
    """Model -> verdict -> number of directories, and of all models."""
    table: dict[str, dict[str, int]] = {}
    for case in cases:
        for model in (case["model"], "all"):
            row = table.setdefault(model, dict.fromkeys(VERDICTS, 0))
            row[case["verdict"]] += 1
    return table


def _text(table: Mapping[str, Mapping[str, int]]) -> str:
    width = max(map(len, table), default=0)
    lines = [" " * width + "".join(f"{verdict:>11}" for verdict in VERDICTS)]
    lines += [
        f"{model:{width}}" + "".join(f"{row[verdict]:11}" for verdict in VERDICTS)
        for model, row in sorted(table.items(), key=lambda pair: (pair[0] == "all", pair[0]))
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
