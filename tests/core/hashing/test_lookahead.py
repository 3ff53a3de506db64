"""Hashes that cover tokens behind their block, against vLLM's own hasher and configuration."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import read_lines
from paths import VECTORS

from mmroute import ImageSize, InexactError, ModelError, Normalizer, Reason
from mmroute.engines.vllm.hashes import hash_lookahead
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.hashing import (
    Algorithm,
    HashedItem,
    chain,
    event_extra_keys,
    extra_keys,
    hash_blocks,
    num_hashed,
)
from mmroute.model_directory import ModelFiles
from mmroute.requests.request import Lora

LINES = read_lines(VECTORS / "block_hashes" / "lookahead.jsonl")
BLOCKS = [line for line in LINES if line["kind"] == "blocks"]
SETTINGS = [line for line in LINES if line["kind"] == "settings"]
EAGLE = {"method": "eagle3", "model": "drafter", "num_speculative_tokens": 2}


def hashed(case: dict[str, Any], **further: Any) -> Any:
    ids = np.array(case["token_ids"], dtype=np.uint32)
    size, lookahead = case["block_size"], case["lookahead"]
    keys = extra_keys(
        [HashedItem(*item) for item in case["items"]],
        num_blocks=num_hashed(len(ids), size, lookahead),
        block_size=size,
        lora=Lora(*case["lora"]) if case["lora"] else None,
        cache_salt=case["cache_salt"],
        lookahead=lookahead,
    )
    hashes = hash_blocks(
        ids,
        keys,
        algorithm=case["algorithm"],
        block_size=size,
        seed=LINES[0]["seed"],
        lookahead=lookahead,
        **further,
    )
    return keys, hashes


def as_json(keys: Any) -> Any:
    return json.loads(json.dumps(keys))


@pytest.mark.parametrize("by_extension", [True, False])
def test_blocks_are_hashed_as_the_engine_does(
    monkeypatch: pytest.MonkeyPatch, *, by_extension: bool
) -> None:
    if not by_extension:
        monkeypatch.setattr(chain, "compiled", lambda _: False)
    for case in BLOCKS:
        keys, hashes = hashed(case)
        assert hashes.hex() == case["expect"]["block_hashes"], case
        assert as_json(event_extra_keys(keys)) == case["expect"]["extra_keys"], case


def test_hashes_of_an_earlier_prompt_are_taken_over_where_the_tokens_behind_are_the_same() -> None:
    ids = np.arange(100, dtype=np.uint32)
    for lookahead in (1, 3, 20):
        first = hash_blocks(ids[:83], lookahead=lookahead)
        fresh = hash_blocks(ids, lookahead=lookahead)
        longer = hash_blocks(ids, lookahead=lookahead, previous=first)
        assert longer.hashes == fresh.hashes
        assert longer.reused == (83 - lookahead) // 16
        other = ids.copy()
        other[50] = 0  # two tokens behind the third block
        changed = hash_blocks(other, lookahead=lookahead, previous=fresh)
        assert changed.hashes == hash_blocks(other, lookahead=lookahead).hashes
        assert changed.reused == (50 - lookahead) // 16
    assert hash_blocks(ids, lookahead=1, previous=hash_blocks(ids)).reused == 0


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_token_id_that_the_extension_declines_is_hashed_by_python(
    monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm
) -> None:
    ids = np.arange(34, dtype=np.uint32)
    ids[-1] = 2**32 - 1  # behind the last block
    found = hash_blocks(ids, algorithm=algorithm, seed="0", lookahead=2)
    monkeypatch.setattr(chain, "compiled", lambda _: False)
    assert found == hash_blocks(ids, algorithm=algorithm, seed="0", lookahead=2)


@pytest.mark.parametrize("wrong", [-1, True, 1.0, None])
def test_a_wrong_lookahead(wrong: Any) -> None:
    with pytest.raises(ValueError, match="lookahead"):
        hash_blocks(np.arange(40, dtype=np.uint32), lookahead=wrong)


def drafter_of(tmp_path: Path, configuration: dict[str, Any] | None) -> dict[str, str]:
    if configuration is None:
        return {}
    (tmp_path / "drafter").mkdir()
    (tmp_path / "drafter" / "config.json").write_text(json.dumps(configuration))
    return {"model": str(tmp_path / "drafter")}


def no_target() -> ModelFiles:
    raise AssertionError


@pytest.mark.parametrize("case", SETTINGS, ids=lambda case: json.dumps(case["given"]))
def test_the_settings_give_as_many_tokens_as_the_engine_s_own(
    case: dict[str, Any], tmp_path: Path
) -> None:
    if "refused" in case:
        return
    settings = VllmSettings(
        speculative={**case["given"], **drafter_of(tmp_path, case["drafter"])},
        prefix_caching=case.get("prefix_caching", True),
        has_connector=case.get("connector", False),
    )
    assert hash_lookahead(settings, no_target) == case["expect"]


def with_args(model: Path, arguments: str, backend: str = "vllm") -> Normalizer:
    settings = VllmSettings.from_args(f"{arguments} --block-size 16")
    return Normalizer.from_pretrained(
        model, backend=backend, model_id="m", engine_settings=settings
    )


def speculating(**given: Any) -> str:
    return f"--speculative-config '{json.dumps(given)}'"


def test_a_command_line_decides(small_model: Callable[[str], Path]) -> None:
    model, ids = small_model("small-qwen2.5-vl"), np.arange(1, 65, dtype=np.uint32)

    def hashes(arguments: str, backend: str = "vllm") -> Any:
        routing = with_args(model, arguments, backend).normalize(prompt_token_ids=ids)
        return routing.block_hashes(seed="0")

    eagle, plain = hashes(speculating(**EAGLE)), hash_blocks(ids, seed="0")
    assert eagle == hash_blocks(ids, lookahead=1, seed="0")
    assert len(eagle) == len(plain) - 1  # the last block waits for the next token
    for same in (
        "--spec-method eagle3 --spec-model drafter --spec-tokens 2",
        "--speculative-config.method eagle3 --speculative-config.model drafter",
    ):
        assert hashes(same) == eagle
    for without in (
        speculating(**EAGLE, disable_lookahead_block_hashes=True),
        f"{speculating(**EAGLE)} --no-enable-prefix-caching",
        f"{speculating(**EAGLE)} --kv-offloading-size 4",
        f'{speculating(**EAGLE)} --kv-transfer-config \'{{"kv_connector": "NixlConnector"}}\'',
        speculating(method="suffix", num_speculative_tokens=8),
    ):
        assert hashes(without) == plain
    for older in ("vllm==0.32", "vllm==0.29"):
        assert hashes(speculating(**EAGLE), older) == hashes("", older)


def test_extra_keys_are_of_the_window_behind(small_model: Callable[[str], Path]) -> None:
    model = with_args(small_model("small-qwen2.5-vl"), speculating(**EAGLE))
    image = {"type": "image", "uuid": "cat"}
    for words in range(20):  # until the image begins at a block
        text = {"type": "text", "text": "a " * words}
        routing = model.normalize(
            messages=[{"role": "user", "content": [text, image]}],
            images=[ImageSize(56, 56)],
        )
        block, offset = divmod(routing.placeholders[0].offset, 4)
        if not offset:
            break
    keys = routing.extra_keys(block_size=4)
    assert keys[block - 1 : block + 1] == ((("mm", "cat", 4),), (("mm", "cat", 0),))
    assert len(keys) == len(routing.block_hashes(block_size=4)) == (len(routing.token_ids) - 1) // 4


def test_the_served_model_drafts_itself(
    changed_model: Callable[..., Path],
) -> None:
    ids = np.arange(1, 65, dtype=np.uint32)
    for modules, lookahead in ((1, 1), (2, 3)):
        told = {"num_nextn_predict_layers": modules}
        model = changed_model(
            "small-qwen2.5-vl", lambda files, told=told: files["config.json"].update(told)
        )
        mtp = with_args(model, speculating(method="mtp", num_speculative_tokens=3))
        routing = mtp.normalize(prompt_token_ids=ids)
        assert routing.block_hashes() == hash_blocks(ids, lookahead=lookahead)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"method": "mtp", "model": "org/nowhere", "num_speculative_tokens": 2}, "org/nowhere"),
        ({"model": "org/nowhere", "num_speculative_tokens": 2}, "config.json of the drafter"),
    ],
)
def test_a_drafter_that_decides_and_is_not_here(
    small_model: Callable[[str], Path], given: dict[str, Any], why: str
) -> None:
    routing = with_args(small_model("small-qwen2.5-vl"), speculating(**given)).normalize(prompt="a")
    assert routing.exact
    with pytest.raises(InexactError, match=why) as caught:
        routing.block_hashes()
    assert caught.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING


@pytest.mark.parametrize(
    "given",
    [
        {"method": "eagel"},
        {"method": 3},
        {"method": "mtp"},
        {"method": "eagle", "num_speculative_tokens": 0},
    ],
)
def test_settings_that_the_engine_has_not(
    small_model: Callable[[str], Path], given: dict[str, Any]
) -> None:
    with pytest.raises(ModelError, match="--speculative-config") as caught:
        with_args(small_model("small-qwen2.5-vl"), speculating(**given))
    assert caught.value.reason is Reason.INVALID_ENGINE_SETTING


@pytest.mark.parametrize(
    "configuration",
    [
        [],
        {"architectures": 5},
        {"architectures": {"a": "b"}},
        {"model_type": "step3p7", "text_config": [1]},
        {"model_type": "deepseek_v3", "num_nextn_predict_layers": "2"},
    ],
)
def test_a_drafter_s_configuration_of_other_types(configuration: Any, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, configuration)
    for given in ({}, {"method": "mtp"}):
        speculative = {"num_speculative_tokens": 2, **given, **drafter}
        with pytest.raises(ModelError):
            hash_lookahead(VllmSettings(speculative=speculative), no_target)
