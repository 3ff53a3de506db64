"""Chooses the models for which vLLM's Rust frontend takes images, and their values that differ.

The frontend counts images by a crate, ``llm-multimodal``. The crate has specs of its own, and takes
the first that matches the model string or ``model_type``. A family's table ``engine.vllm-rust``
says where its values differ from those of the Python frontend.

Source: vLLM ``rust/src/chat/src/multimodal/models.rs``, ``rust/src/chat/src/multimodal.rs``
(`resolve_vision_lanes`), ``rust/src/chat/src/multimodal/models/muse_spark/processor.rs``
(`least_distortion_fit`, whose ties a grid sorts). What each model string matches was asked of the
running frontend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mmroute.families.media import MediaSpec
from mmroute.families.spec import FamilySpec
from mmroute.model_directory import FieldRef, ModelFiles

_ENGINE: Final = "vllm-rust"
"""The engine of the tables in family specs."""


@dataclass(frozen=True, slots=True)
class CrateSpec:
    """One spec of the crate."""

    # The families whose images it counts and that were compared.
    families: frozenset[str] = frozenset()
    model_types: frozenset[str] = frozenset()  # the values of `model_type` that it matches
    # Lists of parts. It also matches a model string with all parts of one list, in any case.
    names: tuple[tuple[str, ...], ...] = ()
    unless: tuple[str, ...] = ()  # parts of model strings that it does not match
    since: tuple[int, ...] = (0, 32)  # the first version of vLLM that has the spec

    def matches(self, name: str, model_type: object) -> bool:
        """Whether the spec matches a model string in lower case, or a model type."""
        if any(part in name for part in self.unless):
            return False
        return model_type in self.model_types or any(
            all(part in name for part in parts) for parts in self.names
        )


_SPECS: Final = (
    # Those that are not covered come first: where one matches, nothing is promised.
    CrateSpec(names=tuple((part,) for part in (
        "deepseek-v4.1", "deepseek_v41", "inkling", "qwen3-asr", "qwen3_asr",
    ))),
    CrateSpec(
        frozenset({"glm-5.3-flash"}),
        frozenset({"glm5_next"}),
        (("glm-5.3-flash",), ("glm5.3-flash",), ("glm-5-next",), ("glm5-next",)),
        since=(0, 33),
    ),
    CrateSpec(
        frozenset({"step-3-vl"}),
        frozenset({"step3_vl", "step5_vl"}),
        (("step3-vl",), ("step3_vl",), ("step5-vl",), ("step5_vl",)),
        since=(0, 33),
    ),
    CrateSpec(
        frozenset({"muse-spark"}),
        frozenset({"muse_spark"}),
        (("muse-spark",), ("muse_spark",)),
        since=(0, 33),
    ),
    CrateSpec(frozenset({"kimi-k3"}), frozenset({"kimi_k3"}), (("kimi", "k3"),)),
    CrateSpec(
        frozenset({"nemotron-omni"}),
        frozenset({"NemotronH_Nano_Omni_Reasoning_V3"}),
        since=(0, 33),
    ),
    CrateSpec(frozenset({"kimi-k2.5"}), frozenset({"kimi_k25"}), (("kimi", "k2"),)),
    CrateSpec(frozenset({"llama-4"}), frozenset({"llama4"}), (("llama-4",), ("llama4",))),
    CrateSpec(frozenset({"llava-next"}), frozenset({"llava_next"})),
    CrateSpec(
        frozenset({"llava-1.5", "llava-onevision"}),
        frozenset({"llava"}),
        (("llava",),),
        unless=("llava-next", "llava_next"),
    ),
    CrateSpec(frozenset({"minimax-m3"}), frozenset({"minimax_m3_vl"}), (("minimax", "m3"),)),
    CrateSpec(
        frozenset({"qwen3-omni"}),
        frozenset({"qwen3_omni_moe"}),
        (("qwen3-omni",), ("qwen3_omni",)),
        since=(0, 33),
    ),
    CrateSpec(
        frozenset({"qwen3-vl", "qwen3.5"}),
        frozenset({"qwen3_vl", "qwen3_5", "qwen3_5_moe"}),
        (("qwen3", "vl"), ("qwen3.5",), ("qwen3.6",)),
    ),
    CrateSpec(
        frozenset({"qwen2-vl", "qwen2.5-vl"}), frozenset({"qwen2_vl"}), (("qwen", "vl"),)
    ),
    CrateSpec(frozenset({"phi-3-vision"}), frozenset({"phi3_v"}), (("phi", "vision"),)),
    CrateSpec(
        frozenset({"gemma-4"}),
        frozenset({"gemma4", "gemma4_unified"}),
        (("gemma-4",), ("gemma4",)),
        since=(0, 33),
    ),
)  # fmt: skip
"""The crate's specs in its order, as far as they are known."""
SERVED: Final = frozenset[str]().union(*(spec.families for spec in _SPECS))
"""The families whose images are covered."""

_PREPROCESSOR: Final = "image_processor:"
_VISION: Final = "config.json:vision_config."
_SQUARE: Final = (
    (f"{_PREPROCESSOR}size.height", f"{_VISION}image_size"),
    (f"{_PREPROCESSOR}size.shortest_edge", f"{_VISION}image_size"),
    (f"{_PREPROCESSOR}patch_size", f"{_VISION}patch_size"),
)
_AGREE: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    # Without its patch token the frontend takes another one.
    "llama-4": (*_SQUARE[:1], ("config.json:image_token_index",) * 2),
    "llava-1.5": _SQUARE,
    "llava-next": _SQUARE,
    "llava-onevision": _SQUARE,
}
"""By family, fields that the frontend reads, and those that the engine reads in their place. A
model is covered where they agree."""
_PLANNED: Final = {
    "gemma-4": "max_soft_tokens", "minimax-m3": "min_pixels", "phi-3-vision": "num_crops"
}  # fmt: skip
"""By family, a value by which the frontend counts, and the engine plans. A model is covered where
both have the same."""

_PROCESSOR: Final = "processor_config.json"
_IMAGE_PROCESSOR: Final = "image_processor"  # which 0.32.0 does not read there


def as_served(family: FamilySpec, files: ModelFiles, version: str, model: str) -> FamilySpec:
    """A family as the frontend takes it: with images or without, never with videos and audio."""
    model_type = files.object("config.json").get("model_type")
    spec = next((spec for spec in _SPECS if spec.matches(model.lower(), model_type)), CrateSpec())
    served = family.for_engine(_ENGINE, version)
    if (
        family.image is None
        or served.image is None
        or family.family not in spec.families
        or tuple(map(int, version.split("."))) < spec.since
        or not _agrees(family.family, family.image, served.image, files)
        or (version == "0.32.0" and _IMAGE_PROCESSOR in files.object(_PROCESSOR))
    ):
        return family.model_copy(update={"image": None, "video": None, "audio": None})
    in_chats = served.image.model_copy(update={"only_in_chats": True})
    return served.model_copy(
        update={"image": in_chats, "video": None, "audio": None, "placement": "targets_alone"}
    )


def _agrees(family: str, engine: MediaSpec, served: MediaSpec, files: ModelFiles) -> bool:
    """Whether the engine plans with the numbers that the frontend counts with."""

    def found(sources: Sequence[FieldRef], default: object = None) -> object:
        looked_up = (files.lookup(files.effective(ref)) for ref in sources)
        return next((value for present, value in looked_up if present), default)

    for one, other in _AGREE.get(family, ()):
        wanted = found([FieldRef.parse(other)])
        if wanted is None or found([FieldRef.parse(one)], wanted) != wanted:
            return False
    if name := _PLANNED.get(family):
        lookups = engine.grid.values[name], served.grid.values[name]
        planned, counted = (found(lookup.sources, lookup.default) for lookup in lookups)
        return planned == counted
    return True
