"""Compute what vLLM's renderers in code make of the requests of `chat_cases`.

Run it from the repository's root in an environment of vLLM 0.33.0:

    python tools/generate_chats.py [MODEL ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
FOLDER = TESTS / "conformance" / "vectors" / "chats"
sys.path[:0] = [str(p) for p in (HERE, TESTS / "helpers", TESTS / "conformance", HERE.parent)]


def main() -> None:
    """Write one file for each model named, or for all."""
    from chat_cases import MODELS, REQUESTS
    from engine import add_arguments, build_engine, meta, refuse_other_versions, write_lines

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    add_arguments(parser)
    arguments = parser.parse_args()
    refuse_other_versions()
    FOLDER.mkdir(exist_ok=True)
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as directory:
            engine, fingerprint = build_engine(model, Path(directory), arguments)
            lines = [
                {"id": name, "expect": engine.prompt(request)} for name, request in REQUESTS.items()
            ]
        write_lines(FOLDER / f"{model}.jsonl", [meta(model, fingerprint=fingerprint), *lines])
        refused = sum("refused" in line["expect"] for line in lines)
        print(f"{model}: {len(lines)} chats, {refused} refused")


if __name__ == "__main__":
    main()
