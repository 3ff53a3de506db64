"""Write the metadata of items as vLLM's render route makes it, for every small model with items.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_metadata.py [MODEL ...]

Processor and serialization are vLLM's; ``tests/geometry/test_metadata.py`` compares.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
VECTORS = TESTS / "conformance" / "vectors" / "metadata"
sys.path[:0] = [str(p) for p in (HERE, TESTS / "helpers", TESTS / "conformance", HERE.parent)]

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
    from generate import with_files
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
    from engine import (
        EMBEDDED,
        add_arguments,
        build_engine,
        meta,
        refuse_other_versions,
        write_lines,
    )
    from small_families import media_model

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*PLACEHOLDERS, *FAMILY_PLACEHOLDERS])
    add_arguments(parser)
    arguments = parser.parse_args()
    refuse_other_versions()
    logging.disable(logging.WARNING)
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as directory:
            files = None if model == EMBEDDED else media_model(model)
            engine, fingerprint = build_engine(model, Path(directory), arguments, files=files)
            if engine._engine.renderer.mm_processor is None:
                continue
            lines = [meta(model, fingerprint=fingerprint), *answers(engine._engine)]
        write_lines(VECTORS / f"{model}.jsonl", lines)
        print(
            f"{model}: {len(lines) - 1} requests, {len(json.dumps(lines))} characters", flush=True
        )


if __name__ == "__main__":
    main()
