"""Write the largest items that vLLM plans its encoder cache with, for every small model.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_plans.py --code DIR [MODEL ...]

It writes ``plans/small_models.jsonl``; models of remote code are asked where they are named.
Configuration, processors and budget are vLLM's; ``tests/core/conformance/test_plans.py`` compares.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import meta, parser_of, prepare, refuse_other_versions
from plan_vectors import PLANS, command_line
from vector_files import write_lines

# The least number of tokens in a batch that `vllm serve` chooses by itself.
_BATCHED = 2048
_SETTINGS: tuple[Mapping[str, Any], ...] = (
    {},
    {"max_num_batched_tokens": 20000},
    {"limit_mm_per_prompt": {"image": 0}},
    {"limit_mm_per_prompt": {"image": 3, "video": 0}},
    {"max_model_len": 300},
    {"max_model_len": 3000},
    {"mm_processor_kwargs": {"max_pixels": 50176}},
)


def plans(directory: Path) -> dict[str, Any]:
    """The plan under each of the settings, by the options of the command line."""
    return {command_line(settings): _plan(directory, settings) for settings in _SETTINGS}


def _plan(directory: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.multimodal import MULTIMODAL_REGISTRY
    from vllm.multimodal.encoder_budget import MultiModalBudget

    from mmroute.lab.parity.oracles.vllm import engine_options
    from mmroute.model_directory import find_model

    fields = {**settings}
    batched = fields.pop("max_num_batched_tokens", _BATCHED)
    try:
        config = ModelConfig(
            dtype="bfloat16",
            seed=0,
            trust_remote_code=any(directory.glob("*.py")),
            **engine_options(find_model(str(directory))),
            **fields,
        )
        scheduler = SchedulerConfig(
            max_model_len=config.max_model_len,
            max_num_batched_tokens=batched,
            is_encoder_decoder=config.is_encoder_decoder,
        )
        whole = VllmConfig(
            model_config=config,
            cache_config=CacheConfig(block_size=16),
            scheduler_config=scheduler,
        )
        budget = MultiModalBudget(whole, MULTIMODAL_REGISTRY)
    except Exception as error:
        message = f"{type(error).__name__}: {error}".replace(str(directory), "MODEL")
        return {"refused": " ".join(message.split())[:160]}
    planned = {name: int(count) for name, count in sorted(budget.mm_max_toks_per_item.items())}
    # The engine has no cache where it takes no items.
    cache = int(budget.encoder_cache_size) if planned else batched
    return {"planned": planned, "encoder_cache": cache}


def main() -> None:
    """Write the file."""
    from small_models import ALL_MODELS, CODE_FAMILIES

    models = [model for model in ALL_MODELS if model not in CODE_FAMILIES]
    arguments = parser_of(__doc__, models).parse_args()
    refuse_other_versions()
    os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_LOGGING_LEVEL="ERROR")
    logging.disable(logging.WARNING)
    lines = {}
    if PLANS.is_file():
        _, *kept = map(json.loads, PLANS.read_text(encoding="utf-8").splitlines())
        lines = {line["model"]: line for line in kept if line["model"] in ALL_MODELS}
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as directory:
            of_files = prepare(model, Path(directory), arguments)
            found = plans(Path(directory))
        if "planned" in found[""]:
            lines[model] = {"model": model, "fingerprint": of_files, "plans": found}
        print(model, found[""], flush=True)
    in_order = [lines[model] for model in ALL_MODELS if model in lines]
    write_lines(PLANS, [meta("all small models"), *in_order])


if __name__ == "__main__":
    main()
