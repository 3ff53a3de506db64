"""Requests and drafters of `block_hashes/lookahead.jsonl`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
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


def blocks() -> Iterator[dict[str, Any]]:
    """Requests of drawn token IDs, items, adapters and salts, by what a block hash may cover."""
    draw = random.Random(0)
    for number, (algorithm, size, ahead) in enumerate(
        itertools.product(ALGORITHMS, SIZES, LOOKAHEADS)
    ):
        length = draw.choice((0, size - 1, size, size + ahead, 3 * size, 4 * size + ahead,
                              6 * size + draw.randrange(size)))  # fmt: skip
        ids = [draw.choice((draw.choice(EDGES), draw.randrange(2**17))) for _ in range(length)]
        yield {
            "algorithm": algorithm, "block_size": size, "lookahead": ahead, "token_ids": ids,
            "items": _items(draw, length, size, ahead),
            "lora": ["sql", "/adapters/sql"] if number % 7 == 3 else None,
            "cache_salt": "pepper" if number % 5 == 2 else None,
        }  # fmt: skip


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


def drafters() -> Iterator[dict[str, Any]]:
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
