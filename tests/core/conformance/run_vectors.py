"""Ask a command the requests of a vector file, and compare its answers with the engine's.

    python tests/core/conformance/run_vectors.py VECTORS [--block-hashes ALGORITHM] -- COMMAND ...

COMMAND reads requests from stdin and writes an answer for each to stdout, as JSON Lines; README.md
beside this file has the fields. ``mmroute tokens MODEL`` and ``mmroute blocks MODEL`` do it. Needs
nothing but Python. The exit status is 1 if any answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from comparison import (
    differences,
    hash_difference,
    read_lines,
    read_vectors,
    request_of,
    with_files,
)

FILES: Final = Path(__file__).parent / "vectors" / "images" / "files.jsonl"


def main() -> int:
    """Run the command once; write what is wrong to stdout, a case in each line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("vectors", metavar="VECTORS", type=Path)
    parser.add_argument("--block-hashes", metavar="ALGORITHM", default="sha256")
    parser.add_argument("command", metavar="COMMAND", nargs="+")
    arguments = parser.parse_args()
    _, cases = read_vectors(arguments.vectors)
    urls = {line["name"]: line["url"] for line in read_lines(FILES)}
    requests = [json.dumps(with_files(request_of(case), urls)) + "\n" for case in cases]
    ended = subprocess.run(
        arguments.command, input="".join(requests).encode(), stdout=subprocess.PIPE, check=True
    )
    answers = [json.loads(line) for line in ended.stdout.split(b"\n") if line]
    if len(answers) != len(cases):
        print(f"{len(answers)} answers to {len(cases)} requests", file=sys.stderr)
        return 1
    failed = 0
    for case, answer in zip(cases, answers, strict=True):
        wrong = differences(answer, case["expect"]) | _hashes(answer, case, arguments.block_hashes)
        if wrong:
            failed += 1
            print(json.dumps({"id": case["id"], "wrong": wrong}))
    print(f"{len(cases) - failed} of {len(cases)} answers are right", file=sys.stderr)
    return int(failed > 0)


def _hashes(answer: dict[str, Any], case: dict[str, Any], algorithm: str) -> dict[str, str]:
    stored = case["expect"].get("block_hashes", {}).get(algorithm)
    if stored is None or "block_hashes" not in answer:
        return {}
    wrong = hash_difference(answer["block_hashes"], stored)
    return {} if wrong is None else {"block_hashes": wrong}


if __name__ == "__main__":
    sys.exit(main())
