"""The hashes of vLLM: one value for each version, which holds the version's algorithms.

Under speculative decoding a hash covers tokens behind its block as well. Source: vLLM
``config/vllm.py`` (`num_hash_lookahead_tokens`) and ``config/speculative.py`` (`__post_init__`,
`hf_config_override`, `use_multi_module_mtp`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

from mmroute.engines.shell_words import wrong
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import (
    ModelError,
    RandomSeedError,
    RandomSeedWarning,
    Reason,
    did_you_mean,
    quoted,
)
from mmroute.hashing import (
    BlockHashes,
    EventKeys,
    ExtraKeys,
    event_extra_keys,
    extra_keys,
    hash_blocks,
    image_hash,
    none_hash,
    num_hashed,
)
from mmroute.hashing.extra_keys import check_block_size
from mmroute.hashing.hashes import HashCache, HashedPrompt, Hashes, HashSettings, RefusedHashes
from mmroute.model_directory import ModelFiles, find_model
from mmroute.token_ids import TokenIds

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


_DEFAULTS: Final = HashSettings(block_size=16, block_size_guessed=True)


@dataclass(frozen=True, slots=True)
class VllmHashes:
    """See `mmroute.hashing.hashes.Hashes`."""

    settings: HashSettings = _DEFAULTS  # the values on which the hashes depend beside the request
    # Returns the extra keys of blocks for the arguments of `mmroute.hashing.extra_keys`.
    keys: Callable[..., Sequence[Any]] = extra_keys
    # Hashes blocks with these keys. It has the arguments of `mmroute.hashing.hash_blocks`.
    hash: Callable[..., BlockHashes] = hash_blocks
    # Whether hashes cover tokens behind their block under speculative decoding. It does not count
    # in comparisons, because without that it has no effect.
    covers_lookahead: bool = field(default=False, compare=False)
    lookahead: int = 0  # the number of lookahead tokens, under the engine's settings
    of_kind: ClassVar = BlockHashes
    item_hash = staticmethod(image_hash)

    def under(self, known: HashSettings, engine: VllmSettings, target: Target) -> Hashes:
        """The hashes of the same version with the settings of an engine."""
        if engine.hashes_refused:
            why = f"{engine.hashes_refused}: block hashes of such an engine are not covered"
            return RefusedHashes(known, why)
        try:
            lookahead = hash_lookahead(engine, target) if self.covers_lookahead else 0
        except ModelError as error:
            if error.reason is Reason.INVALID_ENGINE_SETTING:
                raise
            return RefusedHashes(known, str(error))
        if engine.hash_algorithm is not None:
            try:
                none_hash(engine.hash_algorithm, known.seed)
            except RandomSeedError as error:
                warnings.warn(f"no block hashes: {error}", RandomSeedWarning, stacklevel=2)
        return replace(self, settings=known, lookahead=lookahead)

    def of(
        self,
        prompt: HashedPrompt,
        *,
        algorithm: str | None,
        block_size: int | None,
        seed: str | None,
        previous: BlockHashes | None,
        cache: HashCache | None,
    ) -> BlockHashes:
        known = self.settings
        size = known.size(block_size)
        known.warn_of_model_id(prompt)
        token_ids = prompt.token_ids
        keys = self._keys(prompt, token_ids, size)
        how = {
            "algorithm": known.algorithm if algorithm is None else algorithm,
            "block_size": size,
            "seed": known.seed if seed is None else seed,
        }
        how |= self._given_lookahead()
        if previous is None and cache is not None:
            return cache.hash_blocks(token_ids, keys, self.hash, how)
        return self.hash(token_ids, keys, previous=previous, **how)

    def extra_keys(
        self, prompt: HashedPrompt, block_size: int | None
    ) -> tuple[tuple[Any, ...] | None, ...]:
        size = self.settings.size(block_size)
        return tuple(self._keys(prompt, prompt.token_ids, size))

    def content_keys(self, prompt: HashedPrompt, block_size: int | None) -> tuple[int, ...]:
        from mmroute.engines.events import Contents  # msgspec
        from mmroute.hashing.content import encode

        size, ids = self.settings.size(block_size), prompt.token_ids
        keys, ahead = self._keys(prompt, ids, size), list[bytes]()
        tokens = ids[: len(keys) * size]
        lora_name = None if prompt.lora is None else prompt.lora.name
        if self.lookahead:
            ends = range(size, len(tokens) + 1, size)
            ahead = [encode(ids[end : end + self.lookahead].tolist()) for end in ends]
        elif isinstance(keys, ExtraKeys) and lora_name is None:
            return Contents(tokens, _encoded(keys), None).keys(size)  # takes half of the time
        return Contents.of(tokens, map(encode, self.event_keys(keys)), lora_name, ahead).keys(size)

    def event_keys(self, keys: Sequence[Any]) -> Sequence[EventKeys]:
        """The extra keys of blocks as the version's events have them."""
        return (event_extra_keys(keys) or ()) if self.keys is extra_keys else keys

    def _keys(self, prompt: HashedPrompt, token_ids: TokenIds, size: int) -> Sequence[Any]:
        check_block_size(size)
        return self.keys(
            prompt.hashed_items(),
            num_blocks=num_hashed(len(token_ids), size, self.lookahead),
            block_size=size,
            lora=prompt.lora,
            cache_salt=prompt.cache_salt,
            **self._given_lookahead(),
        )

    def _given_lookahead(self) -> dict[str, int]:
        """The argument for lookahead tokens, which functions of older versions do not take."""
        return {"lookahead": self.lookahead} if self.lookahead else {}


def _encoded(keys: ExtraKeys) -> dict[int, bytes]:
    """The msgpack of the blocks' keys, as events have them."""
    from mmroute.hashing.content import encode

    found = {at: encode(event_extra_keys([each])[0]) for at, each in keys.others.items()}  # type: ignore[index]
    for run in keys.runs:
        head = encode(((run.identity, 0),))[:-1]
        offsets = range(
            run.offset, run.offset - (run.stop - run.first) * keys.block_size, -keys.block_size
        )
        found |= {at: head + encode(offset) for at, offset in enumerate(offsets, run.first)}
    return found
