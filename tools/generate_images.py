"""Compute what vLLM's own code answers to requests with image files in them.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_images.py [MODEL ...]
    python tools/generate_images.py --directory DIR [--out FILE]

The first form writes ``images/MODEL.jsonl`` for the small models. The second asks a real model
directory, compares the answers with mmroute's, which must be installed beside vLLM, and exits
with 1 if any differ. FILE gets the whole requests and answers, for MMROUTE_IMAGE_VECTORS.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from engine import Engine, engines, meta, parser_of, refuse_other_versions
from vector_files import VECTORS, write_lines


def main() -> None:
    """Write the image files and one file for each model named, or for all."""
    from cases import PLACEHOLDERS
    from image_cases import data_url, image_cases, image_files

    parser = parser_of(__doc__, PLACEHOLDERS)
    parser.add_argument("--directory", type=Path, help="a real model directory instead")
    parser.add_argument("--out", type=Path, help="where vLLM's answers for it go")
    arguments = parser.parse_args()
    files = image_files()
    urls = {name: data_url(data) for name, data in files.items()}
    cases = list(image_cases(files))
    if arguments.directory is not None:
        sys.exit(_compare(arguments.directory, arguments.out, cases, urls))
    write_lines(
        VECTORS / "images" / "files.jsonl",
        [{"name": name, "url": url} for name, url in urls.items()],
    )
    for model, engine, fingerprint in engines(arguments):
        lines = _answers(engine, cases, urls, whole=False)
        first = meta(model, model_id=f"org/{model}", fingerprint=fingerprint)
        write_lines(VECTORS / "images" / f"{model}.jsonl", [first, *lines])


def _compare(
    directory: Path, out: Path | None, cases: list[dict[str, Any]], urls: dict[str, str]
) -> int:
    """Ask vLLM and mmroute; the number of differences, 1 at most."""
    from image_vectors import wrong_parts

    from mmroute import Normalizer

    refuse_other_versions()
    model_id = f"org/{directory.name}"
    engine = Engine(directory, model_id=model_id)
    # As JSON has them: the engine's own keys are tuples.
    lines = json.loads(json.dumps(_answers(engine, cases, urls, whole=True)))
    if out is not None:
        write_lines(out, [meta(directory.name, model_id=model_id), *lines])
    normalizer = Normalizer.from_pretrained(str(directory), model_id=model_id)
    wrong = {line["id"]: d for line in lines if (d := wrong_parts(normalizer, line))}
    for name, parts in wrong.items():
        print(f"{name}: {json.dumps(parts)}")
    print(f"{directory.name}: {len(lines) - len(wrong)} of {len(lines)} answers are equal")
    return min(1, len(wrong))


def _answers(
    engine: Any, cases: list[dict[str, Any]], urls: dict[str, str], *, whole: bool
) -> list[dict[str, Any]]:
    from comparison import with_files

    lines = []
    for case in cases:
        request = with_files(case, urls)
        kept = request if whole else case
        lines.append({**kept, "expect": engine.block_answer(request)})
    return lines


if __name__ == "__main__":
    main()
