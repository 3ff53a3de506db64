"""Compute the tokens of many sizes with transformers' own processors, which need torch.

Run it where vLLM is installed, from the repository's root:

    python tools/generate_counts.py

``tests/core/geometry/test_processor_counts.py`` compares them.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vector_files import TESTS, take_no_arguments, write_lines

COUNTS = TESTS / "core" / "geometry" / "processor_counts.jsonl"
# Of the other families the processor is vLLM's, or code in the repository of the model, or vLLM
# gives it values of config.json that it does not read itself.
OWN_PROCESSORS = {
    "small-idefics3": "<image>",
    "small-smolvlm": "<image>",
    "small-granite4-vision": "<image>",
    "small-lfm2-vl": "<image>",
    "small-hunyuan-vl": "<image_start><image><image_end>",
    "small-minicpm-v-4.6": "<|image_pad|>",
    "small-muse-glimmer": "<|patch|>",
    "small-glm-4.1v": "<|image|>",
    "small-qwen3.5": "<|image_pad|>",
    "small-gemma-4": "<|image|>",
    "small-gemma-3n": "<image_soft_token>",
    "small-internvl": "<IMG_CONTEXT>",
    "small-llama-4": "<|image|>",
    "small-command-a-vision": "<|IMG_PATCH|>",
    "small-qwen3-omni": "<|image_pad|>",
    "small-qwen2.5-omni": "<|IMAGE|>",
    "small-paddleocr-vl": "<|IMAGE_PLACEHOLDER|>",
}
"""Each model, and what a text has in place of an image."""
SIZES = 120
LONGEST = 1800


def sizes(seed: str) -> Iterator[tuple[int, int]]:
    """Sides of any order of magnitude, each as likely as the others."""
    draw = random.Random(seed)
    for _ in range(SIZES):
        width, height = (round(LONGEST ** draw.random()) for _ in range(2))
        yield width, height


def counts(model: str) -> list[list[int | None]]:
    """Width, height and feature positions; None where the processor refuses the image."""
    from PIL import Image
    from small_models import FAMILY_MODELS, write_model
    from transformers import AutoProcessor

    files = FAMILY_MODELS[model]()
    fill = feature_id(files["config.json"])
    with tempfile.TemporaryDirectory() as directory:
        write_model(files, Path(directory))
        processor: Any = AutoProcessor.from_pretrained(directory)
        found: list[list[int | None]] = []
        for width, height in sizes(model):
            image = Image.new("RGB", (width, height))
            try:
                ids = processor(text=[OWN_PROCESSORS[model]], images=[image])["input_ids"][0]
            except ValueError:
                found.append([width, height, None])
            except RuntimeError:
                continue  # tiles and thumbnail of two lengths, which it cannot stack; vLLM can
            else:
                found.append([width, height, list(ids).count(fill)])
    return found


def feature_id(config: dict[str, Any]) -> int:
    """The token of a feature position."""
    config = config.get("thinker_config", config)
    names = ("image_token_id", "image_token_index")
    return next(int(config[name]) for name in names if name in config)


def main() -> None:
    """Write all counts."""
    take_no_arguments(__doc__)
    lines: list[dict[str, Any]] = [{"kind": "meta", "transformers": version("transformers")}]
    for model in OWN_PROCESSORS:
        lines.append({"model": model, "counts": counts(model)})
        print(model, flush=True)
    write_lines(COUNTS, lines)


if __name__ == "__main__":
    main()
