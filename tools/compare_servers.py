"""Ask two running servers the same, and say where status or token IDs differ.

    python tools/compare_servers.py THEIRS OURS [--model small-llava-1.5] [--random 1000] [--seed 7]

THEIRS and OURS are addresses, such as those of `vllm launch render MODEL` and of `mmroute serve
MODEL`, both with `--served-model-name served alias`. They are asked the requests of a small model,
and as many random ones as are wanted: one of those each, of which some nodes hold other values.
`mmroute validate MODEL --against THEIRS` compares the prompts of files of vectors.

exit status: 0 where both answer, the token IDs are the same; 1 they are not
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import vector_files  # noqa: F401 - it puts the tests on the path
from odd_types import JSON_VALUES, changed
from server_vectors import ServerCase, requests_to
from servers import Reply, ask, client_of


def main() -> int:
    """Compare, and print what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("theirs", metavar="THEIRS", help="an address, such as http://host:8000")
    parser.add_argument("ours", metavar="OURS", help="the other address")
    parser.add_argument(
        "--model", default="small-llava-1.5", help="whose requests; its placeholder is in them"
    )
    parser.add_argument("--random", type=int, default=0, help="number of random requests")
    parser.add_argument("--seed", type=int, default=0, help="of these (default: 0)")
    arguments = parser.parse_args()
    listed = requests_to(arguments.model)
    cases = [*listed, *random_cases(listed, arguments.random, arguments.seed)]
    differing: dict[str, list[ServerCase]] = collections.defaultdict(list)
    with client_of(arguments.theirs) as theirs, client_of(arguments.ours) as ours:
        for case in cases:
            request = (case.method, case.path, case.raw, case.headers)
            one, other = ask(theirs, *request), ask(ours, *request)
            if one.status != other.status:
                differing[f"status {one.status}, {other.status}"].append(case)
            elif token_ids(one) != token_ids(other):
                differing["other token IDs"].append(case)
    for what, found in differing.items():
        for case in found:
            print(f"{what}: {case.name}: {(case.raw or b'')[:300]!r}")
    counts = {what: len(found) for what, found in differing.items()}
    print(json.dumps({"compared": len(cases), **counts}))
    return int("other token IDs" in differing)


def random_cases(listed: list[ServerCase], count: int, seed: int) -> Iterator[ServerCase]:
    """Some of the requests with other values somewhere; the same ones for one seed."""
    draw = random.Random(seed)
    of_objects = [case for case in listed if case.body and isinstance(case.body, dict)]
    for number in range(count):
        case = draw.choice(of_objects)
        with contextlib.suppress(ValueError, RecursionError):  # too long or too deep for JSON
            body = json.dumps(changed(case.body, draw, JSON_VALUES)).encode()
            yield replace(case, name=f"random {number} {case.name}", body=body)


def token_ids(reply: Reply) -> list[Any]:
    """Of each prompt that an answer is of."""
    items = reply.body if isinstance(reply.body, list) else [reply.body]
    names = ("token_ids", "tokens", "prompt")  # the last of what is detokenized
    return [[item.get(name) for name in names] for item in items if isinstance(item, dict)]


if __name__ == "__main__":
    sys.exit(main())
