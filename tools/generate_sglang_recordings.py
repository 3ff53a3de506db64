"""Record recordings/sglang.jsonl: what a running SGLang announced of a few requests, by settings.

Run it in the environment of mmroute, from the repository's root (some minutes):

    python tools/generate_sglang_recordings.py

`mmroute prove` starts the engine, in the environment that it makes at the first time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vector_files import VECTORS, take_no_arguments, write_lines

_QWEN3, _QWEN2 = "small-qwen3-vl", "small-qwen2.5-vl"
_SETTINGS = {
    "defaults": (_QWEN3, ""),
    "page size": (_QWEN3, "--page-size 32"),
    "processor": (_QWEN3, "--image-processor-backend pil"),
    "old processor": (_QWEN3, "--disable-fast-image-processor"),
    "arguments of processors": (_QWEN3, """--mm-process-config '{"image": {}}'"""),
    "dynamo": (_QWEN3, """--kv-events-config '{"format": "dynamo"}'"""),
    "features": (_QWEN2, ""),
    "files": (_QWEN2, "--mm-preprocess-cache-size-mb 64"),
}
# What an engine that computes reads of config.json beside what decides token IDs.
_TOWER = {"hidden_size": 64, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64}
_ADDED: dict[str, dict[str, dict[str, Any]]] = {
    _QWEN3: {
        "vision_config": {**_TOWER, "depth": 3, "deepstack_visual_indexes": [0, 1, 2]},
        "text_config": {"rope_scaling": {
            "rope_type": "default", "mrope_interleaved": True, "mrope_section": [6, 5, 5],
        }},
    },
    _QWEN2: {
        "vision_config": {**_TOWER, "fullatt_block_indexes": [1]},
        "rope_scaling": {"mrope_section": [4, 6, 6]},
    },
}  # fmt: skip
_TEXT = {"type": "text", "text": "What does a router know of its workers? " * 8}
_IMAGE = {"type": "image"}
_SIZES = [{"width": 112, "height": 84}, {"width": 90, "height": 128}]


def _cases() -> Iterator[dict[str, Any]]:
    asked = [{"role": "user", "content": [_TEXT]}]
    seen = [{"role": "user", "content": [_IMAGE, _TEXT]}]
    yield {"id": "text", "messages": asked}
    yield {"id": "text again", "messages": asked}
    yield {"id": "salted", "messages": asked, "cache_salt": "tenant"}
    yield {"id": "image", "messages": seen, "images": _SIZES[:1]}
    yield {"id": "other image", "messages": seen, "images": _SIZES[1:]}
    both = [{"role": "user", "content": [_IMAGE, _TEXT, _IMAGE]}]
    yield {"id": "two images", "messages": both, "images": _SIZES}
    yield {"id": "prompt", "prompt": _TEXT["text"]}


def main() -> None:
    """Write the file."""
    from small_models import SMALL_MODELS, write_model

    take_no_arguments(__doc__)
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        cases, record = directory / "cases.jsonl", directory / "record.jsonl"
        cases.write_text("\n".join(map(json.dumps, _cases())), encoding="utf-8")
        for setting, (model, options) in _SETTINGS.items():
            files = SMALL_MODELS[model]()
            for field, values in _ADDED[model].items():
                files["config.json"][field] |= values
            path = write_model(files, directory / model)
            line = f"sglang serve {options}"
            command = [sys.executable, "-m", "mmroute", "prove", str(path), "--backend", "sglang"]
            command += ["--engine-args", line, "--cases", str(cases), "--record", str(record)]
            subprocess.run(command, check=False)
            told = {"setting": setting, "model": model, "arguments": line}
            read = record.read_text(encoding="utf-8").splitlines()
            lines += ({**json.loads(recorded), **told} for recorded in read)
    write_lines(VECTORS / "recordings" / "sglang.jsonl", lines)


if __name__ == "__main__":
    main()
