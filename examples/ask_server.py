"""Answers request lines as `mmroute tokens` does, by asking a server.

    python examples/ask_server.py MODEL URL < requests.jsonl

MODEL is a name that the server serves. It is a COMMAND for the runners of the vectors
(tests/core/conformance/README.md).
"""

from __future__ import annotations

import argparse
import json
import sys

from mmroute import connect
from mmroute.cli.requests import answer_line, tokens_answer

parser = argparse.ArgumentParser(description="Answers request lines by asking a server.")
parser.add_argument("model")
parser.add_argument("url")
given = parser.parse_args()
with connect(given.model, given.url) as normalizer:
    for line in sys.stdin.buffer:
        answer = answer_line(line, normalizer.answer, tokens_answer)
        print(json.dumps(answer), flush=True)
