"""Asks vLLM and mmroute about directories that differ from a model's by one field."""

from __future__ import annotations

import gc
import importlib.util
import json
import logging
import os
import resource
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from mmroute.lab.parity.oracles.common import OracleError
from mmroute.lab.specs.field_answers import (
    fields_of_spec,
    judged,
    known_fields,
    oracle_of,
    requests_of,
)
from mmroute.lab.specs.field_changes import READ, Change, added, changes
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import ModelFiles

AGREED: Final = ("right", "neither")
"""The verdicts on which the two say the same."""
WRONG: Final = ("crashed", "silent", "accepted")
"""The verdicts of a spec that promises what is not so."""
_REMEDY: Final = (
    "vLLM cannot be imported here: {}. Changed files are asked of vLLM's own code: install mmroute "
    "into the environment of vLLM 0.33, and run this there"
)


def prepare_vllm(modules: Path) -> None:
    """Import what each directory needs of vLLM once. It has this process for itself from now on."""
    if importlib.util.find_spec("vllm") is None:
        raise OracleError(_REMEDY.format("it is not installed"))
    os.environ.update(
        OMP_NUM_THREADS="1",
        TOKENIZERS_PARALLELISM="false",
        HF_HUB_OFFLINE="1",
        HF_MODULES_CACHE=str(modules),
        VLLM_LOGGING_LEVEL="CRITICAL",
        VLLM_TARGET_DEVICE="cpu",
    )
    logging.disable()
    try:
        import vllm.entrypoints.openai.chat_completion.protocol
        import vllm.renderers.online_renderer
        import vllm.v1.engine.input_processor  # noqa: F401
        from transformers import PretrainedConfig
        from vllm.model_executor.models import registry
    except (ImportError, OSError) as error:
        raise OracleError(_REMEDY.format(error)) from error
    registry._run_in_subprocess = lambda call: call()  # noqa: SLF001 - it is a child of its own
    # It writes logs that nobody reads, in a sixth of the time.
    PretrainedConfig.__repr__ = object.__repr__


class FieldChecks:
    """The directories that differ from a model's by one field.

    Attributes:
        unchanged: the answers about the model as it is.
        changes: the changes of its files.
    """

    def __init__(
        self,
        base: Path,
        resolve: Callable[[Path], ResolvedModel],
        *,
        trust_remote_code: bool,
        files: Collection[str] = READ,
        seed: int = 0,
    ) -> None:
        """Ask about the model as it is."""
        self._base = base
        self._judge = partial(judged, resolve=resolve, trust_remote_code=trust_remote_code)
        ours = resolve(base)
        self.requests: Sequence[Any] = [*requests_of(ours)]
        # In a child: what vLLM loads twice in one process shares a tokenizer, and PaliGemma's
        # processor changes it.
        self.unchanged = in_child(partial(self._judge, base, self.requests))
        oracle = oracle_of(base, trust_remote_code)
        # What the two disagree on without a change, no change is blamed for.
        told = self.unchanged["requests"]
        self.requests = [one for one in self.requests if told[one.id][0] in AGREED]
        contents = {file: _read(base / file) for file in READ if (base / file).is_file()}
        known = known_fields(oracle, contents)
        named = fields_of_spec(ours, ModelFiles(str(base), base), known)
        found = (*changes(contents, known, seed), *added(contents, named, seed))
        self.changes = [one for one in found if one.file in files and self.requests]

    def answers(
        self, wanted: Sequence[Change], *, seconds: int = 30, gibibytes: int = 6
    ) -> Iterator[tuple[Change, dict[str, Any]]]:
        """What the two say about each change, as `judged`."""
        gc.collect()
        gc.freeze()  # children share what is not written
        with tempfile.TemporaryDirectory() as root:
            for number, change in enumerate(wanted):
                directory = Path(root) / str(number) / self._base.name
                lay(self._base, directory, change.files)
                ask = partial(self._judge, directory, self.requests)
                answer = in_child(ask, (seconds, gibibytes))
                shutil.rmtree(directory.parent)
                yield change, answer or {"verdict": "undecided", "requests": {}}


def in_child(call: Callable[[], Any], limits: tuple[int, int] | None = None) -> Any:
    """What a function returns in a child process; None if the process did not live to say it."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(readable)
            if limits is not None:
                gc.disable()
                signal.alarm(limits[0])  # ends the process
                resource.setrlimit(resource.RLIMIT_AS, (limits[1] << 30,) * 2)
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 1)
                os.dup2(nowhere, 2)
            result = json.dumps(call()).encode()
            with os.fdopen(writable, "wb") as pipe:
                pipe.write(result)
        except BaseException:  # noqa: BLE001 - the child must end here
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


def lay(base: Path, directory: Path, changed: Mapping[str, Any]) -> None:
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


_RESULTS: Final = (
    *WRONG, "refused", "undecided", "loaded", "unanswered", "followed", "idle",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldResult:
    """What the changes of one field came to."""

    place: str  # the file and the path of the field
    # ``followed``: prompts change, and mmroute's are vLLM's. ``idle``: they do not change.
    # ``unanswered``: neither of the two answers. Else a verdict: ``silent`` (exact, and not
    # vLLM's), ``accepted`` (vLLM refuses), ``refused`` (vLLM answers), ``loaded`` (vLLM does not
    # load it), ``crashed``, ``undecided``.
    result: str
    changes: list[str] = field(default_factory=list)  # the changes with this result, in words
    # The first request on which the two differ, with both answers; empty if none does.
    differs: str = ""


def field_results(
    unchanged: Mapping[str, Any], answers: Iterable[tuple[Change, Mapping[str, Any]]]
) -> list[FieldResult]:
    """The results by field, in the order of the files; those that are wrong first."""
    found: dict[tuple[str, str], FieldResult] = {}
    for change, answer in answers:
        place = f"{change.file}:{change.field}" if change.field else change.file
        result = _result(answer, unchanged)
        row = found.setdefault(
            (place, result), FieldResult(place, result, differs=_difference(answer))
        )
        row.changes.append(change.what)
    return sorted(found.values(), key=lambda row: _RESULTS.index(row.result))


def _result(answer: Mapping[str, Any], unchanged: Mapping[str, Any]) -> str:
    verdict: str = answer["verdict"]
    if verdict == "right":
        return "idle" if answer["prompts"] == unchanged["prompts"] else "followed"
    return "unanswered" if verdict == "neither" else verdict


def _difference(answer: Mapping[str, Any]) -> str:
    """The first request with the verdict of all, or the refusals to load."""
    if answer["verdict"] in AGREED:
        return ""
    for name, (verdict, theirs, ours) in answer["requests"].items():
        if verdict == answer["verdict"]:
            return f"{name}: vLLM {_told(theirs)}, mmroute {_told(ours)}"
    sides = {"vllm": "vLLM", "mmroute": "mmroute"}
    return ", ".join(f"{sides[side]} {answer[side]}" for side in sides if side in answer)


def _told(answer: int | str) -> str:
    return f"{answer} tokens" if isinstance(answer, int) else answer
