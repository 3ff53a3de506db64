"""The forms in which ``mmroute blocks`` and the server give hashes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import Files

from mmroute import ImageSize, InexactError, Lora, Normalizer, Reason
from mmroute.answering.hash_forms import BlockForm, HashForm
from mmroute.cli.requests import answer_line, blocks_answer
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.hashing import local_block_hashes, sequence_hashes
from mmroute.model_directory import EMBEDDED_MODEL

CHAT = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]


def form(written: str, block_size: int | None = 4) -> BlockForm:
    return BlockForm("sha256", block_size, None, HashForm(written))


def test_dynamo_looks_up_pad_values_and_the_adapter(
    normalizer: Callable[[str], Normalizer],
) -> None:
    routing = normalizer(EMBEDDED_MODEL).normalize(
        messages=CHAT, images=[ImageSize(64, 48, uuid="cat")], lora=Lora("sql", "/sql")
    )
    padded = routing.pad_value_ids()
    assert not np.array_equal(padded, routing.token_ids)
    local = local_block_hashes(padded, block_size=4, lora_name="sql")
    assert form("dynamo").of(routing) == {
        "local_hashes": local,
        "sequence_hashes": sequence_hashes(local),
    }
    assert routing.dynamo_hashes().local == local_block_hashes(
        padded, block_size=16, lora_name="sql"
    )


def test_integers_are_those_of_events(normalizer: Callable[[str], Normalizer]) -> None:
    routing = normalizer(EMBEDDED_MODEL).normalize(prompt="a b c d e f g h")
    hashes = routing.block_hashes(block_size=4)
    assert form("int").of(routing) == {"block_hashes": hashes.event_ints()}
    assert form("hex").of(routing) == {"block_hashes": hashes.hex()}


def test_no_form_hides_what_is_not_known(normalizer: Callable[[str], Normalizer]) -> None:
    routing = normalizer(EMBEDDED_MODEL).normalize(messages=CHAT, images=[ImageSize(64, 48)])
    for written in HashForm:
        with pytest.raises(InexactError) as caught:
            form(written).of(routing)
        assert caught.value.reason is Reason.IMAGE_IDENTITY_UNKNOWN


@pytest.mark.parametrize(
    ("options", "published"),
    [("", 2), ("--tensor-parallel-size 2", 2), ("--tensor-parallel-size 4", None),
     ("--disable-hybrid-kv-cache-manager", None)],
)  # fmt: skip
def test_blocks_that_the_groups_of_a_model_do_not_keep_are_marked(
    options: str, published: int | None, changed_model: Callable[..., Path]
) -> None:
    """Eight heads of 256 beside two of 512: vLLM's blocks have n and 2n tokens, unless on 4 ranks.

    Source: vLLM 0.33.0 ``v1/core/kv_cache_utils.py``, run on this model's groups.
    """

    def in_groups(files: Files) -> None:
        files["config.json"]["text_config"] |= {
            "num_key_value_heads": 8, "head_dim": 256,
            "num_global_key_value_heads": 2, "global_head_dim": 512,
        }  # fmt: skip

    directory = changed_model("small-gemma-4", in_groups)
    settings = VllmSettings.from_args(f"vllm serve org/name --block-size 16 {options}")
    normalizer = Normalizer.from_pretrained(directory, engine_settings=settings)
    routing = normalizer.normalize(prompt_token_ids=[5] * 50)
    found = BlockForm(None, None, None).of(routing)
    assert len(found["block_hashes"]) == 3
    assert found.get("published_blocks") == published


@pytest.mark.parametrize(("reads", "options", "told"), [
    (True, "", {}),
    (False, "", {"reads_cache": False}),
    (True, "--no-enable-prefix-caching", {"reads_cache": False}),
])  # fmt: skip
def test_an_answer_tells_where_no_block_is_reused(
    reads: bool, options: str, told: dict[str, bool], small_model: Callable[[str], Path]
) -> None:
    def in_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in answer.items() if name == "reads_cache"}

    settings = VllmSettings.from_args(f"vllm serve org/name --block-size 16 {options}")
    directory = small_model("small-qwen2.5-vl")
    normalizer = Normalizer.from_pretrained(directory, engine_settings=settings)
    routing = normalizer.normalize(prompt_token_ids=[5] * 40, reads_cache=reads)
    for each in (routing, pickle.loads(pickle.dumps(routing))):
        assert each.reads_cache is not bool(told)
        for written in HashForm:
            assert in_answer(BlockForm(None, None, None, written).of(each)) == told
    line = json.dumps({"prompt_token_ids": [5] * 40, "reads_cache": reads})
    answer = partial(blocks_answer, form=BlockForm(None, None, None))
    found = answer_line(line, normalizer.answer, answer)
    assert found["exact"]
    assert in_answer(found) == told
