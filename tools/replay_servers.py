"""Ask vLLM's render server and `mmroute serve` the same, and say where their answers differ.

For one model after another it starts `vllm launch render` and `mmroute serve` on ports of their
own, with one model string, and posts to both whatever the recorded requests can be posted to:

  chats                  /v1/chat/completions/render and /tokenize; with tools also with
                         "tool_choice": "none", which vLLM needs no parser for
  prompts, token IDs     /v1/completions/render, and for text /tokenize
  every answer's IDs     /detokenize
  with --odd             also /v1/messages/render and /v1/responses/render

Pictures of which only the size is recorded are made, flat and cheap; both get the same bytes.
The differences that docs/server-reference.md lists are data in server_differences.py. They are
counted by name.

A model is the directory of its vectors' `model` below MODELS; a small model of the tests
(tests/models) is written to a temporary directory. vLLM needs a CPU only; the
server of one model takes half a minute to start, and big pictures take seconds each.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import vector_files  # noqa: F401 - it puts the tests on the path
from api_requests import api_requests
from chat_requests import DETOKENIZE
from comparison import read_vectors
from engine import add_phi3v_code
from odd_requests import odd_requests
from replayed import Posted, posted
from server_differences import DELIBERATE
from side_by_side import verdict
from two_servers import Reply, mmroute_serve, post, vllm_render

from mmroute.lab.parity.cases import UndecidedError

_EPILOG: Final = """\
examples:
  python tools/replay_servers.py vllm models vectors/*.jsonl --json all.json
  python tools/replay_servers.py vllm models vectors/qwen2-vl.jsonl --odd 300 --seed 7

exit status: 0 all differences are deliberate; 1 some are not; 2 bad usage
"""
_NAMES: Final = tuple(dict.fromkeys(difference.name for difference in DELIBERATE))
_SHOWN: Final = 300
_EVERY: Final = 50


@dataclass(slots=True)
class Tally:
    """What came of one model's requests."""

    compared: int = 0
    verdicts: collections.Counter[str] = field(default_factory=collections.Counter)
    unposted: collections.Counter[str] = field(default_factory=collections.Counter)
    different: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        deliberate = {name: n for name in _NAMES if (n := self.verdicts[name])}
        return {
            "compared": self.compared, "same": self.verdicts["same"], "deliberate": deliberate,
            "different": self.different, "not_posted": dict(self.unposted),
        }  # fmt: skip


def main() -> int:
    """Compare all models, and print the table."""
    arguments = _arguments()
    by_model: dict[str, list[Path]] = {}
    for path in arguments.vectors:
        by_model.setdefault(read_vectors(path)[0]["model"], []).append(path)
    tallies = {}
    for model, paths in by_model.items():
        print(f"{model}: starting the servers", file=sys.stderr, flush=True)
        tallies[model] = _replay(model, paths, arguments)
    for line in _table(tallies):
        print(line)
    for model, tally in tallies.items():
        for found in tally.different:
            print(f"\n{model}: {json.dumps(found)[: 4 * _SHOWN]}")
    if arguments.json is not None:
        found = {model: tally.as_json() for model, tally in tallies.items()}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(tally.different for tally in tallies.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("vllm", metavar="VLLM", help="vLLM's command")
    parser.add_argument("models", metavar="MODELS", type=Path, help="where the directories are")
    parser.add_argument(
        "vectors", metavar="VECTORS", type=Path, nargs="+", help="files of recorded requests"
    )
    parser.add_argument(
        "--odd", metavar="N", type=int, default=0,
        help="post the requests of odd_requests.py and api_requests.py as well, and N random ones",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0, help="of the random ones (default: %(default)s)"
    )
    parser.add_argument(
        "--phi3v-code", metavar="DIR", type=Path,
        help="Phi-3-vision's processor code, for directories that lack it",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", type=Path, help="write everything found there")
    parser.add_argument(
        "--logs", metavar="DIR", type=Path, default=Path(tempfile.gettempdir()),
        help="where the servers' logs go (default: %(default)s)",
    )  # fmt: skip
    return parser.parse_args()


def _replay(model: str, paths: Sequence[Path], arguments: argparse.Namespace) -> Tally:
    tally = Tally()
    requests = list(_requests(paths, tally))
    if arguments.odd:
        requests += odd_requests(arguments.odd, arguments.seed)
    directory = arguments.models / model
    logs = {name: arguments.logs / f"{model}.{name}.log" for name in ("vllm", "mmroute")}
    with tempfile.TemporaryDirectory() as place:
        run, options = _for_vllm(directory, Path(place) / model, arguments.phi3v_code)
        if arguments.odd:
            requests += api_requests(str(run), arguments.odd, arguments.seed)
        options += _backend_options(read_vectors(paths[0])[0])
        trust = "--trust-request-mm-kwargs"
        own = (trust, "--model-id", str(run), "--served-model-name", str(run))
        with (
            vllm_render(arguments.vllm, str(run), trust, *options, log=logs["vllm"]) as theirs,
            mmroute_serve(str(directory), *own, log=logs["mmroute"]) as ours,
        ):
            for number, request in enumerate(requests, 1):
                _compare(tally, request, (theirs, ours))
                if number % _EVERY == 0 or number == len(requests):
                    state = f"{number} of {len(requests)}, {len(tally.different)} different"
                    print(f"{model}: {state}", file=sys.stderr, flush=True)
    return tally


def _requests(paths: Iterable[Path], tally: Tally) -> Iterator[Posted]:
    for path in paths:
        for case in read_vectors(path)[1]:
            try:
                yield from posted(case)
            except UndecidedError as reason:
                tally.unposted[str(reason)] += 1


def _compare(tally: Tally, request: Posted, servers: tuple[Any, Any]) -> None:
    theirs, ours = (post(server, request.path, request.body) for server in servers)
    found = verdict(request, theirs, ours)
    tally.compared += 1
    if found is None:
        tally.different.append({
            "name": request.name, "path": request.path, "body": _shown(request.body),
            "vllm": _shown_reply(theirs), "mmroute": _shown_reply(ours),
        })  # fmt: skip
        return
    tally.verdicts[found] += 1
    for ids in _token_ids(theirs):
        back = Posted(f"{request.name}, back", DETOKENIZE, {"tokens": ids})
        _compare(tally, back, servers)


def _token_ids(reply: Reply) -> Iterator[list[int]]:
    """Of each prompt an answer is of; ``/tokenize`` says them again, and is not asked back."""
    for item in reply.body if isinstance(reply.body, list) else [reply.body]:
        if isinstance(item, dict) and "token_ids" in item:
            yield item["token_ids"]


def _for_vllm(directory: Path, copy: Path, phi3v_code: Path | None) -> tuple[Path, list[str]]:
    """The directory vLLM is started with: the model's own, unless its code is missing there."""
    config = directory / "config.json"
    kind = json.loads(config.read_text()).get("model_type") if config.is_file() else None
    if kind != "phi3_v" or any(directory.glob("processing_*.py")):
        return directory, []
    if phi3v_code is None:
        raise SystemExit(f"{directory} has no processor code; give it with --phi3v-code")
    copy.mkdir()
    for file in directory.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    add_phi3v_code(copy, phi3v_code)
    return copy, ["--trust-remote-code"]


def _backend_options(meta: Mapping[str, Any]) -> list[str]:
    """What the recorded vLLM was started with beside the model, as options of its command."""
    given = meta.get("backend_args", {})
    return [
        word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)
    ]


def _table(tallies: Mapping[str, Tally]) -> Iterator[str]:
    names = [name for name in _NAMES if any(t.verdicts[name] for t in tallies.values())]
    reasons = sorted({reason for tally in tallies.values() for reason in tally.unposted})
    columns = ["compared", "same", *names, "different", *(f"not posted: {r}" for r in reasons)]
    rows = {
        model: [
            tally.compared, tally.verdicts["same"], *(tally.verdicts[name] for name in names),
            len(tally.different), *(tally.unposted[reason] for reason in reasons),
        ]
        for model, tally in tallies.items()
    }  # fmt: skip
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    yield f"| model | {' | '.join(columns)} |"
    yield "| --- |" + " ---: |" * len(columns)
    for model, row in rows.items():
        yield f"| {model} | {' | '.join(map(str, row))} |"


def _shown(body: Any) -> Any:
    text = body.decode(errors="replace") if isinstance(body, bytes) else json.dumps(body)
    return body if len(text) <= _SHOWN and not isinstance(body, bytes) else text[:_SHOWN]


def _shown_reply(reply: Reply) -> list[Any]:
    return [reply.status, _shown(reply.body)]


if __name__ == "__main__":
    sys.exit(main())
