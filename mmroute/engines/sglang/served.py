"""How SGLang serves a model: by a class of its own or by transformers, with items or without.

Source: SGLang 0.5.23 ``srt/configs/model_config.py`` (`mm_disabled_models`),
``srt/models/registry.py``, ``srt/mem_cache/kv_cache_builder.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mmroute.engines.sglang.lists import listed

if TYPE_CHECKING:
    from mmroute.engines.sglang.settings import SglangSettings
    from mmroute.families.spec import FamilySpec
    from mmroute.model_directory import ModelFiles

_CONFIG: Final = "config.json"
_OCR_CODE: Final = (
    "modeling_deepseekocr.DeepseekOCRForCausalLM",
    "modeling_deepseekocr2.DeepseekOCR2ForCausalLM",
)
_VL2: Final = "DeepseekVLV2ForCausalLM"  # SGLang's class has another name
# Their processors do without the engine's look for BOS.
_OWN_PROCESSORS: Final = frozenset({
    "DeepseekOCRForCausalLM", "Step3VLForConditionalGeneration", _VL2,
})  # fmt: skip
_LLAVA: Final = "LlavaForConditionalGeneration"  # likewise, if its vision model is CLIP
# Their items are switched on by --enable-multimodal.
_WITHOUT_ITEMS: Final = frozenset({
    "Gemma3ForConditionalGeneration", "InklingForConditionalGeneration",
    "Llama4ForConditionalGeneration", "Step3VLForConditionalGeneration",
})  # fmt: skip


def as_read(files: ModelFiles) -> ModelFiles:
    """The files as SGLang reads them, where it takes a model for one of another family.

    Source: SGLang 0.5.23 ``srt/utils/hf_transformers/common.py`` (`_is_deepseek_ocr_model`),
    ``srt/multimodal/processors/nano_nemotron_vl.py`` (`dynamic_resolution`).
    """
    config = dict(files.object(_CONFIG))
    if config.get("model_type") == "deepseek_vl_v2":
        code = config.get("auto_map")
        if isinstance(code, dict) and code.get("AutoModel") in _OCR_CODE:
            return files
        config["architectures"] = [_VL2]
    vision = config.get("vision_config")
    if isinstance(vision, dict) and not config.get("dynamic_resolution"):
        radio = vision.get("args")
        if isinstance(radio, dict):
            tiled = {name: value for name, value in radio.items() if name != "min_num_patches"}
            config["vision_config"] = {**vision, "args": tiled}
    return replace(files, _json={_CONFIG: config})


def is_native(files: ModelFiles, version: str) -> bool:
    """Whether a version of SGLang has a class of its own for a model."""
    named = set(_architectures(files))
    own = (entry["name"] for entry in listed("architectures", version))
    return _VL2 in named or not named.isdisjoint(own)


def always_adds_bos(files: ModelFiles, version: str) -> bool:
    """Whether a prompt with items gets BOS in front, be it there or not."""
    named = set(_architectures(files))
    vision = files.object(_CONFIG).get("vision_config")
    of_clip = isinstance(vision, dict) and vision.get("model_type") == "clip_vision_model"
    own = bool(named & _OWN_PROCESSORS) or (_LLAVA in named and of_clip)
    return own or not is_native(files, version)


def is_multimodal(family: FamilySpec, files: ModelFiles, settings: SglangSettings) -> bool:
    """Whether SGLang serves a model with items."""
    off = set(_architectures(files)[:1]) & _WITHOUT_ITEMS
    return bool(family.media) and (settings.enable_multimodal or not off)


def _architectures(files: ModelFiles) -> list[str]:
    found = files.object(_CONFIG).get("architectures")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
