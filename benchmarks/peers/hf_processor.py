"""The model's own processor of transformers: requests as JSON in, times and IDs as JSON out.

    python hf_processor.py < JOB

Timed is the processor's call alone, on the rendered text and decoded images.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import time
from importlib.metadata import version

from PIL import Image
from transformers import AutoProcessor


def main() -> None:
    """Answer one job."""
    job = json.load(sys.stdin)
    processor = AutoProcessor.from_pretrained(job["model"])
    times, token_ids = [], []
    for request in job["requests"]:
        images = [_decoded(image) for image in request["images"]]
        started = time.perf_counter_ns()
        found = processor(text=[request["text"]], images=images, return_tensors="pt")
        times.append(time.perf_counter_ns() - started)
        token_ids.append(found["input_ids"][0].tolist())
    # The first request also imports and prepares what all others use.
    versions = {name: version(name) for name in ("transformers", "torch")}
    found = {"versions": versions, "token_ids": token_ids, "times_ns": {"call": times[1:]}}
    json.dump(found, sys.stdout)


def _decoded(image: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB")


if __name__ == "__main__":
    main()
