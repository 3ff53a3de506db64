"""Compute the expected answers in this directory with vLLM's own code.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate.py [MODEL ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
VECTORS = TESTS / "conformance" / "vectors"
sys.path[:0] = [str(p) for p in (HERE, TESTS / "helpers", TESTS / "conformance", HERE.parent)]


def with_files(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """A case with a file in place of each video and audio of which it gives the numbers."""
    from mmroute.parity.media_cases import gif_url, wav_url

    urls = {
        "video": iter(
            gif_url(v["width"], v["height"], v["num_frames"], 100 // v["fps"])
            for v in case.get("videos", ())
        ),
        "audio": iter(
            wav_url(a["num_samples"], a["sampling_rate"]) for a in case.get("audios", ())
        ),
    }

    def part(value: Any) -> Any:
        kind = value.get("type") if isinstance(value, Mapping) else None
        if kind not in urls:
            return value
        return {"type": f"{kind}_url", f"{kind}_url": {"url": next(urls[kind])}}

    def message(value: Mapping[str, Any]) -> Mapping[str, Any]:
        content = value.get("content")
        return {**value, "content": [*map(part, content)]} if isinstance(content, list) else value

    if not (case.get("videos") or case.get("audios")):
        return case
    return {**case, "messages": [*map(message, case["messages"])]}


def main() -> None:
    """Write one file for each model named, or for all."""
    from cases import FAMILY_PLACEHOLDERS, PLACEHOLDERS, cases, family_cases
    from engine import add_arguments, build_engine, meta, refuse_other_versions, write_lines

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*PLACEHOLDERS, *FAMILY_PLACEHOLDERS])
    add_arguments(parser)
    arguments = parser.parse_args()
    refuse_other_versions()
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as directory:
            engine, fingerprint = build_engine(model, Path(directory), arguments)
            lines = [meta(model, fingerprint=fingerprint)]
            family = model in FAMILY_PLACEHOLDERS
            for case in family_cases(model) if family else cases(model):
                if not case.get("images"):
                    case.pop("images", None)
                lines.append(case | {"expect": engine.answer(with_files(case))})
        write_lines((VECTORS / "families" if family else VECTORS) / f"{model}.jsonl", lines)
        refused = sum("refused" in line.get("expect", {}) for line in lines)
        print(f"{model}: {len(lines) - 1} cases, {refused} refused")


if __name__ == "__main__":
    main()
