"""Compute block_hashes/lookahead.jsonl with vLLM's own block hasher, block pool and configuration.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_lookahead.py

Lines of kind "blocks" are requests of drawn token IDs, items, adapters and salts, with the hashes
of their blocks and what the pool's event says of them. Lines of kind "settings" are drafters, with
the number of lookahead tokens that vLLM's configuration gives.
"""

# vLLM is imported only where it is installed.

from __future__ import annotations

import itertools
import json
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine import ALGORITHMS, ENGINE_VERSION, refuse_other_versions
from vector_files import VECTORS, write_lines

OUTPUT = VECTORS / "block_hashes" / "lookahead.jsonl"
SEED = "0"
EDGES = (0, 1, 23, 24, 255, 256, 65535, 65536, 2**24, 2**31 - 1)
SIZES = (1, 4, 16, 32, 160)
LOOKAHEADS = (0, 1, 2, 3, 5)
_WITH_MODULES = (
    {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
     "num_nextn_predict_layers": 1},
    {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
     "num_nextn_predict_layers": 3},
    {"model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"],
     "num_nextn_predict_layers": 2},
    {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"],
     "text_config": {"mtp_num_hidden_layers": 2}},
    {"model_type": "step3p7", "architectures": ["Step3p7ForConditionalGeneration"],
     "text_config": {"num_nextn_predict_layers": 3}},
)  # fmt: skip
"""Drafters with modules of their own, as far as they differ from the defaults of their type."""
_SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
          "num_key_value_heads": 2}  # fmt: skip


def main() -> None:
    """Write the file."""
    refuse_other_versions()
    os.environ["PYTHONHASHSEED"] = SEED
    os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0"
    lines = [
        {"kind": "meta", "backend": "vllm", "backend_version": ENGINE_VERSION, "seed": SEED},
        *_all_blocks(random.Random(0)),
        *map(_settings, _drafters()),
    ]
    write_lines(OUTPUT, lines)


def _all_blocks(draw: random.Random) -> Iterator[dict[str, Any]]:
    for number, (algorithm, size, ahead) in enumerate(
        itertools.product(ALGORITHMS, SIZES, LOOKAHEADS)
    ):
        length = draw.choice((0, size - 1, size, size + ahead, 3 * size, 4 * size + ahead,
                              6 * size + draw.randrange(size)))  # fmt: skip
        ids = [draw.choice((draw.choice(EDGES), draw.randrange(2**17))) for _ in range(length)]
        yield _blocks(
            algorithm,
            size,
            ahead,
            ids,
            _items(draw, length, size, ahead),
            lora=["sql", "/adapters/sql"] if number % 7 == 3 else None,
            salt="pepper" if number % 5 == 2 else None,
        )


def _items(draw: random.Random, length: int, size: int, ahead: int) -> list[list[Any]]:
    """Items one behind the other, many of them at a border of a block or of what a hash covers."""
    items: list[list[Any]] = []
    at = 0
    names = itertools.cycle(["cat", "dog", "f" * 64, "cat", "\u00e9"])
    while True:
        border = -(-at // size) * size
        start = max(at, border + draw.choice((-1, 0, 0, 1, ahead, ahead - 1, ahead + 1)))
        stop = start + draw.choice((1, 1, 2, size, 2 * size, size + ahead))
        if stop > length or draw.random() < 0.15:
            return items
        items.append([next(names), start, stop - start])
        at = stop


def _blocks(
    algorithm: str,
    size: int,
    ahead: int,
    ids: list[int],
    items: list[list[Any]],
    *,
    lora: list[str] | None,
    salt: str | None,
) -> dict[str, Any]:
    import vllm.v1.core.kv_cache_utils as kv
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.request import Request

    function = get_hash_fn_by_name(algorithm)
    kv.init_none_hash(function)
    hasher = kv.get_request_block_hasher(size, function, ahead)
    request = Request.from_engine_core_request(_core_request(ids, items, lora, salt), hasher)
    count = len(request.block_hashes)
    told: dict[str, Any] = {"extra_keys": None, "lookahead_token_ids": None}
    if count:
        pool = BlockPool(count + 2, True, size, enable_kv_cache_events=True,
                         num_hash_lookahead_tokens=ahead)  # fmt: skip
        pool.cache_full_blocks(request, pool.get_new_blocks(count), 0, count, size, 0)
        (event,) = pool.take_events()
        told = {name: getattr(event, name) for name in told}
    return {
        "kind": "blocks", "algorithm": algorithm, "block_size": size, "lookahead": ahead,
        "token_ids": ids, "items": items, "lora": lora, "cache_salt": salt,
        "expect": {"block_hashes": [value.hex() for value in request.block_hashes], **told},
    }  # fmt: skip


def _core_request(
    ids: list[int], items: list[list[Any]], lora: list[str] | None, salt: str | None
) -> Any:
    """The request as the engine's core gets it: through its message encoding."""
    from vllm.lora.request import LoRARequest
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    request = EngineCoreRequest(
        request_id="r",
        prompt_token_ids=ids,
        mm_features=[
            MultiModalFeatureSpec(None, "image", name, PlaceholderRange(offset, length), name)
            for name, offset, length in items
        ] or None,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        arrival_time=0.0,
        lora_request=lora and LoRARequest(lora[0], 1, lora[1]),
        cache_salt=salt,
        data_parallel_rank=None,
    )  # fmt: skip
    return MsgpackDecoder(EngineCoreRequest).decode(MsgpackEncoder().encode(request))


def _drafters() -> Iterator[dict[str, Any]]:
    """What an engine may be started with: a drafter's configuration, and the options."""
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    for method, tokens in itertools.product(("eagle", "eagle3", "dflash", "draft_model"), (1, 3)):
        yield {"drafter": llama, "given": {"method": method, "num_speculative_tokens": tokens}}
    for method in ("ngram", "ngram_gpu"):
        yield {"drafter": None, "given": {"method": method, "num_speculative_tokens": 2}}
    for drafter in _WITH_MODULES:
        for name, number in itertools.product(("mtp", "deepseek_mtp", None), (1, 2, 3, None)):
            how = {"method": name, "num_speculative_tokens": number}
            yield {"drafter": drafter, "given": {k: v for k, v in how.items() if v is not None}}
    yield {"drafter": _WITH_MODULES[1],
           "given": {"method": "draft_model", "num_speculative_tokens": 3}}  # fmt: skip
    eagle = {"method": "eagle3", "num_speculative_tokens": 2}
    for name, value in itertools.product(
        ("disable_eagle_block_drop", "disable_lookahead_block_hashes"), (True, False)
    ):
        yield {"drafter": llama, "given": {**eagle, name: value}}
    yield {"drafter": llama, "given": eagle, "prefix_caching": False}
    yield {"drafter": llama, "given": eagle, "connector": True}


def _settings(case: dict[str, Any]) -> dict[str, Any]:
    """The case with the number of lookahead tokens, or that the engine refuses it."""
    from vllm.config import ModelConfig, ParallelConfig, SpeculativeConfig, VllmConfig

    with tempfile.TemporaryDirectory() as directory:
        target = _model(directory, "served", {"model_type": "llama", **_SMALL,
                                              "architectures": ["LlamaForCausalLM"]})  # fmt: skip
        drafter = {}
        if case["drafter"] is not None:
            drafter["model"] = _model(directory, "drafter", case["drafter"])
        try:
            config = SpeculativeConfig(
                **drafter,
                **case["given"],
                target_model_config=ModelConfig(target, tokenizer_mode="slow"),
                target_parallel_config=ParallelConfig(),
            )
        except (TypeError, ValueError) as error:
            return {"kind": "settings", **case, "refused": type(error).__name__}
    whole = SimpleNamespace(
        speculative_config=config,
        num_speculative_tokens=config.num_speculative_tokens,
        cache_config=SimpleNamespace(enable_prefix_caching=case.get("prefix_caching", True)),
        kv_transfer_config=SimpleNamespace() if case.get("connector") else None,
    )
    whole.num_prefill_lookahead_tokens = VllmConfig.num_prefill_lookahead_tokens.fget(whole)
    return {"kind": "settings", **case, "expect": VllmConfig.num_hash_lookahead_tokens.fget(whole)}


def _model(directory: str, name: str, given: dict[str, Any]) -> str:
    """A directory with the defaults of a model type, and what is given of it."""
    from transformers import AutoConfig

    defaults = AutoConfig.for_model(given["model_type"]).to_dict()
    for key, value in given.items():
        defaults[key] = defaults.get(key) | value if isinstance(value, dict) else value
    path = Path(directory) / name
    path.mkdir()
    (path / "config.json").write_text(json.dumps(defaults))
    return str(path)


if __name__ == "__main__":
    main()
