"""Write the metadata of items as vLLM's render route makes it, for every small model with items.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_metadata.py [MODEL ...]

Processor and serialization are vLLM's; ``tests/core/geometry/test_metadata.py`` compares.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from engine import EMBEDDED, engines, meta, parser_of
from generate import with_files
from vector_files import VECTORS, write_lines

_SIZES = ((1280, 720), (33, 500), (1, 1), (200, 196))
_VIDEOS = ((64, 48, 2, 1), (100, 33, 5, 4), (320, 240, 33, 20))
_LENGTHS = ((16000, 16000), (48003, 48000), (500, 16000))
_FIELDS = {
    "image": ("width", "height"),
    "video": ("width", "height", "num_frames", "fps"),
    "audio": ("num_samples", "sampling_rate"),
}


def requests() -> Iterator[dict[str, Any]]:
    """One item of each kind, and all of a kind together."""
    for modality, all_numbers in (("image", _SIZES), ("video", _VIDEOS), ("audio", _LENGTHS)):
        names = _FIELDS[modality]
        items = [dict(zip(names, numbers, strict=True)) for numbers in [*all_numbers]]
        for chosen in ([items[0]], [items[1]], [items[2]], items):
            content = [{"type": modality} for _ in chosen] + [{"type": "text", "text": "What?"}]
            yield {"messages": [{"role": "user", "content": content}], f"{modality}s": chosen}


def answers(engine: Any) -> Iterator[dict[str, Any]]:
    """The requests that the engine answers, and the metadata in its answers."""
    from vllm.entrypoints.scale_out.token_in_token_out.mm_features import extract_mm_features

    renderer = engine.renderer
    declared = renderer.mm_processor.info.data_parser.placeholder_metadata_fields
    for request in requests():
        # Each request as the first one a server gets: it sends an item once.
        if renderer.mm_processor_cache is not None:
            renderer.mm_processor_cache.clear_cache()
        asked = with_files(request)
        try:
            entered = engine._rendered(asked, *engine.chat_prompt(asked))
            features = extract_mm_features(entered, metadata_fields_for=declared)
        except Exception:  # noqa: S112 - it refuses the items, or two adjacent ranges overlap
            continue
        if features is not None:
            yield {**request, "expect": features.mm_metadata}


def main() -> None:
    """Write one file for each model named, or for all."""
    from cases import FAMILY_PLACEHOLDERS, PLACEHOLDERS
    from small_models import media_model

    arguments = parser_of(__doc__, [*PLACEHOLDERS, *FAMILY_PLACEHOLDERS]).parse_args()
    logging.disable(logging.WARNING)

    def files_of(model: str) -> dict[str, Any] | None:
        return None if model == EMBEDDED else media_model(model)

    for model, engine, fingerprint in engines(arguments, files_of):
        if engine._engine.renderer.mm_processor is not None:
            lines = [meta(model, fingerprint=fingerprint), *answers(engine._engine)]
            write_lines(VECTORS / "metadata" / f"{model}.jsonl", lines)


if __name__ == "__main__":
    main()
