"""Shrunken copies have the IDs of their models, and few weights."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_models import SMALL_MODELS

from mmroute import Normalizer
from mmroute.errors import ModelError
from mmroute.lab.engines.shrinking import shrink, shrunk_config, shrunk_params
from mmroute.lab.parity.comparison import our_outcome
from mmroute.lab.parity.suite import built_in_cases
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import TOKENIZER_FILES, find_model

LAYERS = ("num_hidden_layers", "depth", "n_layers", "encoder_layers", "vt_num_hidden_layers")
UNANSWERED = ("internvl2-2b-finetune", "minicpm-v-4.5")  # no tokenizer.json, and no config.json
EVERY = 9  # of the built-in requests so many-th is asked


def copy_of(model: str | Path, into: Path) -> Path:
    shrink(find_model(str(model)), TOKENIZER_FILES, into / "copy")
    return into / "copy"


def assert_same_answers(first: ResolvedModel, copy: Path) -> None:
    second = resolve_model(str(copy))
    for case in built_in_cases(first)[::EVERY]:
        ours, theirs = our_outcome(first, case), our_outcome(second, case)
        assert ours.refusal is None or theirs.refusal is not None, case.id
        assert ours.ranges == theirs.ranges, case.id
        if ours.token_ids is not None:
            assert theirs.token_ids is not None, case.id
            assert np.array_equal(ours.token_ids, theirs.token_ids), case.id


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_a_copy_has_the_same_ids(
    name: str,
    small_model: Callable[[str], Path],
    normalizer: Callable[[str], Normalizer],
    tmp_path: Path,
) -> None:
    assert_same_answers(normalizer(name).model, copy_of(small_model(name), tmp_path))


def directories() -> list[Path]:
    names = ("MMROUTE_SMALL_MODELS", "MMROUTE_MODELS", "MMROUTE_TEXT_MODELS")
    roots = [Path(os.environ[name]) for name in names if os.environ.get(name)]
    paths = sorted(path for root in roots for path in root.iterdir() if path.is_dir())
    return [path for path in paths if path.name not in UNANSWERED]


@pytest.mark.models
@pytest.mark.parametrize("model", directories(), ids=lambda path: path.name)
def test_a_real_directory_has_a_small_copy_with_the_same_ids(model: Path, tmp_path: Path) -> None:
    copy = copy_of(model, tmp_path)
    assert_same_answers(resolve_model(str(model)), copy)
    written = next(copy / n for n in ("config.json", "params.json") if (copy / n).exists())
    config = json.loads(written.read_text(encoding="utf-8"))
    shrunken = config.get("thinker_config", config)
    parts = [part for part in shrunken.values() if isinstance(part, dict)]
    for part in (shrunken, *parts):
        for name in LAYERS:
            assert not isinstance(part.get(name), int) or part[name] <= 8, name


def test_each_kind_of_layer_is_kept_and_lists_for_each_layer_are_cut() -> None:
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 4
    config = {
        "model_type": "m",
        "num_hidden_layers": 12,
        "layer_types": kinds,
        "num_attention_heads": 8,
        "hidden_size": 1024,
        "sliding_window": 512,
        "vocab_size": 1000,
        "num_kv_shared_layers": 10,  # more than are left
    }
    before = json.dumps(config)
    small = shrunk_config(config)
    assert json.dumps(config) == before
    assert small["num_hidden_layers"] == 3
    assert small["layer_types"] == kinds[:3]
    assert (small["sliding_window"], small["vocab_size"]) == (512, 1000)
    assert small["num_kv_shared_layers"] == 0
    assert small["hidden_size"] == 128  # one head of the same size


def test_two_kinds_of_heads_keep_their_proportion() -> None:
    """It decides which layers have larger blocks."""
    text = {
        "num_hidden_layers": 30, "layer_types": ["sliding_attention", "full_attention"] * 15,
        "num_attention_heads": 8, "num_key_value_heads": 4, "num_global_key_value_heads": 1,
        "head_dim": 256, "global_head_dim": 512, "hidden_size": 2048,
    }  # fmt: skip
    small = shrunk_config({"text_config": text})["text_config"]
    kept = ("num_key_value_heads", "num_global_key_value_heads", "head_dim", "global_head_dim")
    assert [small[name] for name in kept] == [text[name] for name in kept]


def test_a_tower_is_narrow_and_feeds_the_language_model() -> None:
    config = {
        "text_config": {
            "num_hidden_layers": 28, "num_attention_heads": 16, "head_dim": 128,
            "hidden_size": 2048, "num_experts": 128, "num_experts_per_tok": 8,
        },
        "vision_config": {
            "depth": 27, "hidden_size": 1152, "num_heads": 16, "out_hidden_size": 2048,
            "patch_size": 16, "deepstack_visual_indexes": [8, 16, 24],
        },
    }  # fmt: skip
    small = shrunk_config(config)
    text, vision = small["text_config"], small["vision_config"]
    assert vision["depth"] == text["num_hidden_layers"] == 3  # a layer for each deep feature
    assert vision["out_hidden_size"] == text["hidden_size"]
    assert vision["patch_size"] == 16
    assert (text["num_experts"], text["num_experts_per_tok"]) == (4, 2)


def test_a_projector_stands_between_a_tower_and_the_language_model() -> None:
    config = {
        "text_config": {"num_attention_heads": 16, "head_dim": 128, "hidden_size": 2048},
        "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152},
        "projector_config": {"input_hidden_size": 1152, "out_hidden_size": 2048, "n_embed": 2048},
    }
    small = shrunk_config(config)
    projector, width = small["projector_config"], small["text_config"]["hidden_size"]
    assert projector["input_hidden_size"] == small["vision_config"]["hidden_size"]
    assert projector["out_hidden_size"] == projector["n_embed"] == width


def test_a_projector_fits_a_tower_whose_size_is_a_name() -> None:
    config = {
        "language_config": {"num_attention_heads": 10, "hidden_size": 1280},
        "vision_config": {"model_name": "siglip_large_patch16_384"},
        "projector_config": {"input_hidden_size": 1024, "n_embed": 1280},
    }
    small = shrunk_config(config)
    assert small["projector_config"] == {"input_hidden_size": 1024, "n_embed": 128}


def test_fields_that_stand_twice_stay_equal() -> None:
    text = {"hidden_size": 2048, "num_hidden_layers": 4, "layer_types": ["full_attention"] * 4}
    small = shrunk_config({**text, "num_attention_heads": 16, "text_config": dict(text)})
    assert {name: small[name] for name in text} == {n: small["text_config"][n] for n in text}
    assert len(small["layer_types"]) == small["num_hidden_layers"] == 2


def test_the_recordings_encoder_of_mistral_parameters_is_shrunk() -> None:
    encoder = {"dim": 1280, "n_layers": 32, "n_heads": 20, "head_dim": 64, "hidden_dim": 5120}
    arguments = {"encoder_args": encoder, "downsample_args": {"downsample_factor": 4}}
    params = {"dim": 3072, "n_layers": 30, "multimodal": {"whisper_model_args": arguments}}
    small = shrunk_params(params)["multimodal"]["whisper_model_args"]
    assert small["downsample_args"] == {"downsample_factor": 4}
    assert small["encoder_args"]["n_layers"] == 2
    assert small["encoder_args"]["n_heads"] * small["encoder_args"]["head_dim"] == 64


def test_mistral_parameters_are_shrunk() -> None:
    params = {
        "dim": 5120, "n_layers": 40, "n_heads": 32, "n_kv_heads": 8, "head_dim": 128,
        "vision_encoder": {"hidden_size": 1024, "num_hidden_layers": 24, "image_size": 1024},
    }  # fmt: skip
    small = shrunk_params(params)
    assert (small["n_layers"], small["head_dim"]) == (2, 128)
    assert small["vision_encoder"]["num_hidden_layers"] == 2
    assert small["vision_encoder"]["image_size"] == 1024


def test_files_are_links_and_what_stood_there_is_gone(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    model = small_model("small-qwen2.5-vl")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "old").touch()
    copy = copy_of(model, tmp_path)
    assert not (copy / "old").exists()
    assert (copy / "tokenizer.json").resolve() == (model / "tokenizer.json").resolve()
    assert not (copy / "config.json").is_symlink()


def test_a_directory_without_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ModelError, match=r"no config\.json and no params\.json"):
        copy_of(tmp_path / "model", tmp_path)
