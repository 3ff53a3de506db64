"""vLLM's `processor.apply`, in vLLM's environment: requests as JSON in, times and IDs as JSON out.

    python vllm_processor.py < JOB

Timed is `apply` alone, on token IDs and decoded images, once with images that its cache has not
seen and once more with the same.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

from vllm.multimodal.media.image import ImageMediaIO

sys.path.insert(0, str(Path(__file__).parents[2]))
from mmroute.model.files import find_model
from mmroute.parity.oracles.vllm import VllmEngine


def main() -> None:
    """Answer one job."""
    job = json.load(sys.stdin)
    renderer = VllmEngine(find_model(job["model"])).renderer
    apply = renderer.mm_processor.apply
    spent: list[int] = []

    def timed(*arguments: object) -> object:
        started = time.perf_counter_ns()
        result = apply(*arguments)
        spent.append(time.perf_counter_ns() - started)
        return result

    renderer.mm_processor.apply = timed
    process = renderer._process_multimodal  # noqa: SLF001 - what vLLM itself calls `apply` from
    token_ids = []
    for request in job["requests"]:
        files = [base64.b64decode(image) for image in request["images"]]
        found = {}
        for _ in ("cold", "warm"):
            images = [ImageMediaIO().load_bytes(file) for file in files]
            found = process(request["token_ids"], {"image": images}, None, None)
        token_ids.append(list(found["prompt_token_ids"]))
    # The first request also imports and prepares what all others use.
    times = {"cold": spent[2::2], "warm": spent[3::2]}
    versions = {"vLLM": version("vllm")}
    json.dump({"versions": versions, "token_ids": token_ids, "times_ns": times}, sys.stdout)


if __name__ == "__main__":
    main()
