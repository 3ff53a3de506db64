"""Answer a model's vectors with the vLLM that is imported, and say where its answers differ.

    PYTHONPATH=DIRECTORY python tools/port_replay.py MODEL

DIRECTORY holds another version's package, and `tools/port.py` runs this for each model. The last
line of the output is JSON: the number of requests, and for each field of an answer the requests
that have another value there; or why the model cannot be loaded, and whether a package is missing.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from engine import build_engine, parser_of
from generate import with_files
from vector_files import VECTORS


def main() -> None:
    """Replay one model's vectors, and those of its videos and audio."""
    from small_models import media_model

    arguments = parser_of(__doc__, ()).parse_args()
    (model,) = arguments.models
    requests, differing = 0, defaultdict(list)
    for folder in ("", "families", "media"):
        path = VECTORS / folder / f"{model}.jsonl"
        if not path.is_file():
            continue
        cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
        requests += len(cases)
        files = media_model(model) if folder == "media" else None
        with tempfile.TemporaryDirectory() as directory:
            try:
                engine, _ = build_engine(model, Path(directory), arguments, files)
            except Exception as error:  # noqa: BLE001 - the engine raises many types
                print(json.dumps(failure(error)))
                return
            for case in cases:
                expected, found = case.pop("expect"), engine.answer(with_files(case))
                for field in expected.keys() | found.keys():
                    if expected.get(field) != found.get(field):
                        differing[field].append(case["id"])
    print(json.dumps({"requests": requests, "differing": differing}))


def failure(error: BaseException) -> dict[str, Any]:
    """What the exception at the root of another one says, as a result."""
    while error.__cause__ is not None:
        error = error.__cause__
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return {"failed": said, "lacks_package": isinstance(error, ImportError)}


if __name__ == "__main__":
    main()
