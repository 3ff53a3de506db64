"""Compute the expected answers in this directory with vLLM's own code.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate.py [MODEL ...]
    python tools/generate.py --media [MODEL ...]    videos and audio
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine import engines, meta, parser_of
from vector_files import VECTORS, write_lines


def with_files(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """A case with a file in place of each video and audio of which it gives the numbers."""
    from mmroute.lab.parity.media_cases import gif_url, wav_url

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
    from cases import FAMILY_PLACEHOLDERS, PLACEHOLDERS, cases, family_cases, media_cases
    from small_models import MEDIA, MEDIA_ANSWERED, media_model

    parser = parser_of(__doc__, ())
    parser.add_argument("--media", action="store_true", help="ask for videos and audio")
    arguments = parser.parse_args()
    if arguments.media:
        arguments.models = arguments.models or MEDIA_ANSWERED
        answered = engines(arguments, media_model)
    else:
        arguments.models = arguments.models or [*PLACEHOLDERS, *FAMILY_PLACEHOLDERS]
        answered = engines(arguments)
    for model, engine, fingerprint in answered:
        if arguments.media:
            folder, requests = "media", media_cases(model, MEDIA[model])
        elif model in FAMILY_PLACEHOLDERS:
            folder, requests = "families", family_cases(model)
        else:
            folder, requests = "", cases(model)
        lines = [meta(model, fingerprint=fingerprint)]
        for case in requests:
            if not case.get("images"):
                case.pop("images", None)
            lines.append(case | {"expect": engine.answer(with_files(case))})
        write_lines(VECTORS / folder / f"{model}.jsonl", lines)


if __name__ == "__main__":
    main()
