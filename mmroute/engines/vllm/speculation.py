"""The number of tokens behind a block that its hash covers, under speculative decoding.

Source: vLLM ``config/vllm.py`` (`num_hash_lookahead_tokens`) and ``config/speculative.py``
(`__post_init__`, `hf_config_override`, `use_multi_module_mtp`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from mmroute.engines.shell_words import wrong
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import ModelError, Reason, did_you_mean, quoted
from mmroute.model_directory import ModelFiles, find_model

Target: TypeAlias = Callable[[], ModelFiles]
"""Finds the files of the model that the engine serves."""

_CONFIG: Final = "config.json"
# Drafters that read the next token beside the hidden state of a position; and the others.
_READING_AHEAD: Final = frozenset({"eagle", "eagle3", "mtp"})
_OTHERS: Final = frozenset({
    "[ngram]", "custom_class", "dflash", "draft_model", "dspark", "extract_hidden_states", "ngram",
    "ngram_gpu", "suffix",
})  # fmt: skip
_MTP_SUFFIX: Final = "_mtp"  # deepseek_mtp and others: former names of mtp
# The method of drafters with one of these in their name, the first that is there.
_NAMED: Final = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}
# Model types, and classes, whose own modules draft.
_WITH_MODULES: Final = frozenset({
    "BailingMoeV2_5ForCausalLM", "BailingMoeV3ForCausalLM",
    "BailingMoeV3VLForConditionalGeneration", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM",
    "GlmOcrForConditionalGeneration", "MiMoForCausalLM", "MiMoV2FlashForCausalLM",
    "MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM", "MiniMaxM3SparseForConditionalGeneration",
    "RadioMBartPrefixForCausalLM", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration",
    "Step5ForCausalLM", "Step5ForConditionalGeneration", "bailing_hybrid", "deepseek_v3",
    "deepseek_v32", "deepseek_v4", "dots3_note", "ernie4_5_moe", "exaone4_5", "exaone_moe",
    "gemma4_assistant", "gemma4_unified_assistant", "glm5_next", "glm_moe_dsa", "hy_v3", "hy_v4",
    "inkling_mm_model", "inkling_model", "intern_s2_preview", "interns2_mobius", "kimi_k3",
    "longcat_flash", "minimax_m3_vl", "pangu_ultra_moe", "qwen3_5", "qwen3_5_moe",
    "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen4_exp", "qwen4_exp_text", "step3p5",
    "step3p7", "step5", "step5_vl",
})  # fmt: skip
# Those of them that count their modules in another object, and those that run the first one alone.
_COUNTED_IN: Final = {
    **dict.fromkeys(("inkling_mm_model", "inkling_model"), "mtp_config"),
    **dict.fromkeys((
        "BailingMoeV3VLForConditionalGeneration", "MiniMaxM3SparseForConditionalGeneration",
        "NemotronH_Omni_Reasoning_V3", "NemotronH_Super_Omni_Reasoning_V3",
        "Step3p7ForConditionalGeneration", "Step5ForConditionalGeneration", "minimax_m3_vl",
        "step3p7", "step5_vl",
    ), "text_config"),
}  # fmt: skip
_FIRST_ALONE: Final = frozenset({
    "MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM",
    "RadioMBartPrefixForCausalLM",
})  # fmt: skip


def hash_lookahead(settings: VllmSettings, target: Target) -> int:
    """The number of tokens behind a block that its hash covers; 0 without such a drafter."""
    given = settings.speculative
    if (
        not given
        or given.get("disable_eagle_block_drop")
        or given.get("disable_lookahead_block_hashes")
        or settings.has_connector
        or not settings.prefix_caching
    ):
        return 0
    method = _method(given, settings.model, target)
    if method != "mtp":
        return int(method in _READING_AHEAD)
    tokens: int = given.get("num_speculative_tokens", 0)
    if not tokens:
        raise wrong("--speculative-config: the method mtp needs num_speculative_tokens")
    if tokens == 1:
        return 1
    return tokens if _num_modules(_configuration(given, target)) > 1 else 1


def _method(given: Mapping[str, Any], model: str | None, target: Target) -> str:
    """The method, as the engine makes it of the given one and the drafter."""
    method, drafter = given.get("method"), str(given.get("model") or "")
    if method is None and drafter in ("ngram", "[ngram]"):
        return "ngram"
    if isinstance(method, str) and method.endswith(_MTP_SUFFIX):
        method = "mtp"
    if method not in {None, *_READING_AHEAD, *_OTHERS}:
        known = sorted(_READING_AHEAD | _OTHERS)
        hint = did_you_mean(str(method), known)
        raise wrong(f"--speculative-config: there is no method {quoted(method)}{hint}")
    if method not in (None, "mtp", "draft_model"):
        return str(method)
    name = drafter or (model or target().name if method == "mtp" else "")
    for part, named in _NAMED.items():
        if part in name.lower():
            return named
    if method == "mtp":
        return "mtp"
    if method is not None and not Path(drafter).is_dir():
        return "draft_model"  # what it says: another model is not fetched to contradict it
    return "mtp" if _kinds(_configuration(given, target)) & _WITH_MODULES else "draft_model"


def _configuration(given: Mapping[str, Any], target: Target) -> Mapping[str, Any]:
    """The configuration of the drafter: of the served model, where no other is named."""
    drafter = given.get("model")
    if drafter is None:
        return target().object(_CONFIG)
    try:
        return find_model(str(drafter), revision=given.get("revision")).object(_CONFIG)
    except ModelError as error:
        raise ModelError(
            Reason.UNSUPPORTED_ENGINE_SETTING,
            f"--speculative-config: what block hashes cover depends on {_CONFIG} of the drafter "
            f"{quoted(drafter)}, which cannot be read here: {error}",
        ) from error


def _kinds(configuration: Mapping[str, Any]) -> set[str]:
    """The model type and the first class."""
    architectures = configuration.get("architectures") or [""]
    if not isinstance(architectures, list):
        raise _malformed("architectures", "a list", architectures)
    return {str(configuration.get("model_type")), str(architectures[0])}


def _num_modules(configuration: Mapping[str, Any]) -> int:
    """The drafter's modules for further tokens."""
    kinds = _kinds(configuration)
    if kinds & _FIRST_ALONE:
        return 1
    places = {_COUNTED_IN[kind] for kind in kinds & _COUNTED_IN.keys()}
    for place in places:
        configuration = configuration.get(place) or {}
        if not isinstance(configuration, Mapping):
            raise _malformed(place, "an object", configuration)
    modules = configuration.get("num_nextn_predict_layers", 1)
    if type(modules) is not int:
        raise _malformed("num_nextn_predict_layers", "a number", modules)
    return modules


def _malformed(name: str, wanted: str, found: object) -> ModelError:
    return ModelError(
        Reason.UNSUPPORTED_ENGINE_SETTING,
        f"{name} of the drafter must be {wanted}, found {quoted(found)}",
    )
