"""Compute the expected answers in this directory with vLLM's own code.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate.py [MODEL ...]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine import engines, meta, parser_of
from vector_files import VECTORS, write_lines


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

    arguments = parser_of(__doc__, [*PLACEHOLDERS, *FAMILY_PLACEHOLDERS]).parse_args()
    for model, engine, fingerprint in engines(arguments):
        lines = [meta(model, fingerprint=fingerprint)]
        family = model in FAMILY_PLACEHOLDERS
        for case in family_cases(model) if family else cases(model):
            if not case.get("images"):
                case.pop("images", None)
            lines.append(case | {"expect": engine.answer(with_files(case))})
        write_lines((VECTORS / "families" if family else VECTORS) / f"{model}.jsonl", lines)


if __name__ == "__main__":
    main()
