"""What ``--hf-overrides`` changes: the longest context, the class of the model, and items.

Source of the lengths: vLLM 0.33.0's `ModelConfig`, asked with the same overrides.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from mmroute import ImageSize, ModelError, Normalizer, Reason
from mmroute.engines.vllm.settings import VllmSettings

YARN: Final = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LINEAR: Final = {"rope_type": "linear", "factor": 4.0}
IMAGE: Final = [{"role": "user", "content": [{"type": "image"}]}]
LONG: Final = "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 "


def line(overrides: object, more: str = "") -> str:
    return f"vllm serve m --hf-overrides {shlex.quote(json.dumps(overrides))} {more}"


def length(model: Path, arguments: str) -> int:
    settings = VllmSettings.from_args(arguments)
    return Normalizer.from_pretrained(model, engine_settings=settings).model.max_model_len


@pytest.fixture
def llama(changed_model: Callable[..., Path]) -> Callable[..., Path]:
    """A language model with a context of 512 tokens."""

    def written(**config: Any) -> Path:
        given = {"max_position_embeddings": 512, **config}
        return changed_model("small-llama", lambda files: files["config.json"].update(given))

    return written


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"rope_scaling": YARN}, 512),
        ({"rope_parameters": YARN | {"rope_theta": 1e6}}, 512),
        ({"rope_scaling": LINEAR}, 2048),
        ({"rope_parameters": LINEAR}, 2048),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 1024),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 512),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 4}}, 512),
        (
            {"rope_scaling": {"rope_type": "longrope"}, "original_max_position_embeddings": 64},
            64,
        ),
        ({"rope_scaling": None}, 512),
        ({"rope_theta": 5e6}, 512),
        ({"max_position_embeddings": 100}, 100),
        ({"max_position_embeddings": 100, "rope_scaling": LINEAR}, 400),
        ({"max_seq_len": 100}, 100),
        ({"model_max_length": 1000}, 1000),
        ({"original_max_position_embeddings": 10}, 512),
        ({"max_model_len": 10}, 512),
        ({"num_nextn_predict_layers": 1, "quantization_config": {}, "index_topk": 1}, 512),
    ],
)
def test_the_longest_context_of_a_language_model(
    overrides: dict[str, Any], expected: int, llama: Callable[..., Path]
) -> None:
    model = llama()
    assert length(model, line(overrides)) == expected
    assert length(model, line(overrides, "--max-model-len auto")) == expected


def test_any_rule_but_those_of_yarn_has_a_factor_of_length(llama: Callable[..., Path]) -> None:
    for rule, expected in (
        ({"rope_type": "default", "factor": 4.0}, 2048),
        ({"rope_type": "deepseek_yarn", "factor": 4.0}, 512),
    ):
        assert length(llama(rope_scaling=rule), "vllm serve m") == expected


def test_a_rule_in_the_files_is_replaced(llama: Callable[..., Path]) -> None:
    model = llama(rope_scaling={"rope_type": "linear", "factor": 2.0})
    assert length(model, line({"rope_theta": 1})) == 1024
    assert length(model, line({"rope_parameters": YARN})) == 512
    assert length(model, line({"rope_scaling": {}})) == 512


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"text_config": {"rope_parameters": YARN}}, 32768),
        ({"text_config": {"rope_parameters": LINEAR}}, 131072),
        ({"text_config": {"rope_scaling": {"factor": 2}}}, 65536),  # the files have its type
        ({"text_config": {"max_position_embeddings": 1000}}, 1000),
        ({"rope_parameters": LINEAR}, 32768),
        ({"max_position_embeddings": 1000}, 32768),
    ],
)
def test_a_language_model_inside_another_has_overrides_of_its_own(
    overrides: dict[str, Any], expected: int, small_model: Callable[[str], Path]
) -> None:
    """Files that are flat are read into a nested configuration, as those of Qwen2.5-VL."""
    for name in ("small-qwen2.5-vl", "small-qwen3-vl"):
        model = small_model(name)
        own = length(model, "vllm serve m")
        assert length(model, line(overrides)) * 32768 == expected * own or expected == 1000


def test_dotted_options_are_the_same(llama: Callable[..., Path]) -> None:
    model = llama()
    dotted = "m --hf-overrides.rope_parameters.factor 4"
    assert length(model, f"{dotted} --hf-overrides.rope_parameters.rope_type linear") == 2048
    assert length(model, "m --hf-overrides.max_position_embeddings 100") == 100
    assert length(model, "m --hf-overrides.max-position-embeddings 100") == 512  # no such field


def test_a_longer_context_needs_the_variable(llama: Callable[..., Path]) -> None:
    model = llama()
    asked = line({"rope_scaling": YARN}, "--max-model-len 2048")
    assert length(model, LONG + asked) == 2048
    with pytest.raises(ModelError, match="VLLM_ALLOW_LONG_MAX_MODEL_LEN") as caught:
        length(model, asked)
    assert caught.value.reason is Reason.INVALID_ENGINE_SETTING


def test_longrope_may_be_used_in_full(llama: Callable[..., Path]) -> None:
    """Only the default is the length before scaling."""
    model = llama(
        rope_scaling={"type": "longrope", "long_factor": [1.0]},
        original_max_position_embeddings=64,
    )
    assert length(model, "vllm serve m") == 64
    assert length(model, "vllm serve m --max-model-len 500") == 500


@pytest.mark.parametrize(
    "overrides",
    [
        {"vocab_size": 5},
        {"text_config": {"vocab_size": 5}},
        {"model_type": "qwen3"},
        {"auto_map": {}},
        {"is_encoder_decoder": True},
    ],
)
def test_what_changes_every_request_is_refused_by_name(
    overrides: dict[str, Any], small_model: Callable[[str], Path]
) -> None:
    (name, inner), *_ = overrides.items()
    name = next(iter(inner)) if name == "text_config" else name
    model = small_model("small-qwen2.5-vl")
    with pytest.raises(ModelError, match=f"--hf-overrides: {name}") as caught:
        VllmSettings.from_args(line(overrides))
    assert caught.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING
    given = VllmSettings(hf_overrides=overrides)
    with pytest.raises(ModelError, match=f"--hf-overrides: {name}") as caught:
        Normalizer.from_pretrained(model, engine_settings=given)
    assert caught.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING


def test_a_function_is_refused(llama: Callable[..., Path]) -> None:
    function: Any = dict
    settings = VllmSettings(hf_overrides=function)
    with pytest.raises(ModelError, match="function") as caught:
        Normalizer.from_pretrained(llama(), engine_settings=settings)
    assert caught.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING


@pytest.mark.parametrize(
    "overrides",
    [
        {"image_token_id": 5},
        {"vision_config": {"patch_size": 7}},
        {"text_config": {"anything": 1}},
        {"anything": 1},
    ],
)
def test_other_keys_refuse_requests_with_items(
    overrides: dict[str, Any], small_model: Callable[[str], Path]
) -> None:
    model = small_model("small-qwen2.5-vl")
    settings = VllmSettings.from_args(line(overrides))
    plain = Normalizer.from_pretrained(model)
    normalizer = Normalizer.from_pretrained(model, engine_settings=settings)
    text: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
    found, expected = normalizer.normalize(**text), plain.normalize(**text)
    assert found.token_ids.tolist() == expected.token_ids.tolist()
    for request in ({"messages": IMAGE}, {"prompt": "<|image_pad|>"}):
        asked: dict[str, Any] = {**request, "images": [ImageSize(64, 64)]}
        refused = normalizer.normalize(**asked)
        assert refused.reason is Reason.UNSUPPORTED_ENGINE_SETTING
        assert next(iter(overrides)) in refused.message
        assert plain.normalize(**asked).exact


def test_keys_of_weights_leave_items(small_model: Callable[[str], Path]) -> None:
    model = small_model("small-qwen2.5-vl")
    settings = VllmSettings.from_args(
        line({"text_config": {"rope_parameters": YARN, "num_hidden_layers": 2}, "use_cache": False})
    )
    asked: dict[str, Any] = {"messages": IMAGE, "images": [ImageSize(64, 64, uuid="a")]}
    found = Normalizer.from_pretrained(model, engine_settings=settings).normalize(**asked)
    assert (
        found.block_hashes() == Normalizer.from_pretrained(model).normalize(**asked).block_hashes()
    )


def test_a_class_is_followed(
    llama: Callable[..., Path], small_model: Callable[[str], Path]
) -> None:
    model = llama(architectures=["OwnForCausalLM"])
    with pytest.raises(ModelError) as caught:
        length(model, "vllm serve m")
    assert caught.value.reason is Reason.UNKNOWN_FAMILY
    assert length(model, line({"architectures": ["LlamaForCausalLM"]})) == 512
    vision = small_model("small-qwen2.5-vl")
    same = line({"architectures": ["Qwen2_5_VLForConditionalGeneration"]})
    assert length(vision, same) == length(vision, "vllm serve m")
    for named in ("Qwen2ForCausalLM", "Qwen2VLForConditionalGeneration", "Unknown"):
        with pytest.raises(ModelError, match=named):
            length(vision, line({"architectures": [named]}))


def test_overrides_do_not_reach_a_drafter_in_the_same_files(
    llama: Callable[..., Path],
) -> None:
    """Source: vLLM 0.33.0 `SpeculativeConfig.compose_draft_hf_overrides`."""
    model = llama(architectures=["MiMoForCausalLM"], num_nextn_predict_layers=3)
    drafting = """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}' """
    prompt: dict[str, Any] = {"prompt_token_ids": list(range(1, 35))}

    def hashed(arguments: str) -> int:
        settings = VllmSettings.from_args(arguments)
        normalizer = Normalizer.from_pretrained(model, engine_settings=settings)
        return len(normalizer.normalize(**prompt).block_hashes(block_size=16))

    assert hashed("vllm serve m") == hashed(f"vllm serve m {drafting.replace('3}', '1}')}") == 2
    assert hashed(f"vllm serve m {drafting}") == 1
    for overrides in ({"num_nextn_predict_layers": 1}, {"architectures": ["LlamaForCausalLM"]}):
        assert hashed(line(overrides, drafting)) == 1
