"""The settings of vLLM on which token IDs, identities and hashes depend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from mmroute.engine import AdoptedLine, EngineSettings, find_engine
from mmroute.engines.shell_words import wrong
from mmroute.errors import ModelError, Reason, quoted
from mmroute.requests.items import Modality

if TYPE_CHECKING:
    from mmroute.net.transport import Transport

_POSITIVE: Final = ("max_model_len", "max_num_batched_tokens", "block_size", "max_image_pixels",
             "max_decoded_bytes")  # fmt: skip

OF_HASHES: Final = (
    "model", "served_names", "block_size", "hash_block_size", "hash_algorithm", "hash_seed",
    "speculative", "prefix_caching", "has_connector", "tensor_parallel", "hybrid_groups",
    "context_parallel", "identity_algorithm", "lora_in_identities", "loras", "hashes_refused",
    "without_effect",
)  # fmt: skip
"""The settings that change only identities and block hashes."""
_OF_ANSWERS: Final = ("tool_parser", "reasoning_parser")


@dataclass(frozen=True, slots=True)
class VllmSettings(EngineSettings):
    """The options with which vLLM was started. None or empty stands for its default.

    Attributes:
        model: the engine's model string, which its image identities cover.
        served_names: the served names, by which requests ask for the model.
        revision: the branch, tag or commit on the hub.
        tokenizer_mode: ``auto``, or the engine's name for the tokenizer and the chat renderer.
        chat_template: the template that replaces the model's own: its text, or the path of a file.
        content_format: the form in which the chat template gets message contents: ``openai`` or
            ``string``.
        chat_template_kwargs: variables for the template where a request does not set them.
        mm_processor_kwargs: the processor's arguments where a request does not set them.
        media_io_kwargs: the arguments of readers, by modality, where a request does not set them.
        limits: the most items of each modality in one prompt; 0 for none.
        planned_sizes: whether ``--limit-mm-per-prompt`` also has sizes, by which the engine plans
            its encoder cache.
        media_refused: for a modality, the options that change the tokens of its items in a way that
            is not covered.
        interleaves_items: whether placeholders stand where their items are, in contents that
            become one text (``--interleave-mm-strings``).
        excludes_tools: whether tools are left out where none may be called.
        reasoning_efforts: the value that the chat template gets in place of a request's effort.
        dtype: the type that the engine computes with, of which some items' metadata are.
        max_model_len: the number of tokens of the longest context.
        allow_long_context: whether the context may be longer than the model's own.
        fits_memory: whether the engine lowers its longest context to what its memory holds
            (``--max-model-len auto``), so that prompts may be refused which are answered here.
        disable_sliding_window: whether the context is no longer than a sliding window.
        hf_overrides: the values that replace those of the model's configuration.
        max_num_batched_tokens: the number of tokens in one batch, and the least number of features
            that the encoder cache holds.
        block_size: the number of tokens in a block.
        hash_block_size: the number of tokens under one hash, if it differs from the block size, as
            for hybrid models.
        hash_algorithm: the algorithm of block hashes.
        hash_seed: the engine's PYTHONHASHSEED.
        speculative: the configuration of speculative decoding, by which hashes may cover tokens
            behind their block.
        prefix_caching: whether the engine keeps blocks for later requests.
        has_connector: whether a KV connector transfers or offloads blocks.
        tensor_parallel: the number of ranks that share the heads of a layer.
        hybrid_groups: whether layers of different kinds are cached in groups of their own.
        context_parallel: whether blocks are shared among ranks, by which a hash covers several.
        identity_algorithm: the algorithm of image identities: ``blake3``, ``sha256`` or ``sha512``.
        lora_in_identities: whether identities of requests to a LoRA adapter begin with its name.
        loras: the path of each adapter, by its name.
        trust_request_mm_kwargs: whether requests may set processor arguments. Where it is false,
            such requests are refused if the command line is `complete`, and answered otherwise.
        trust_request_chat_template: whether requests may bring a chat template.
        media_domains: the hosts of links that the engine follows; empty for all.
        local_media_path: the directory below which the engine, and mmroute on its own machine,
            read the files of ``file:`` links; empty for none.
        max_image_pixels: the most pixels of one image.
        max_decoded_bytes: the most bytes that all items of a request may take when decoded.
        processor_cache_off: whether no processed items are kept (``--mm-processor-cache-gb 0``).
        offline: whether the model string is a path in the hub's cache (HF_HUB_OFFLINE).
        hashes_refused: the reason why block hashes cannot be computed; empty if they can.
        system_instructions: whether instructions are in the system message of chats of gpt-oss.
        from_modelscope: whether the engine reads the files of ModelScope.
        start_date: the date of today in chats of gpt-oss (VLLM_SYSTEM_START_DATE); None for the
            date of the clock.
        complete: whether the settings come from a complete command line, so that all options which
            it lacks have their defaults.
        tool_parser: the parser of tool calls in answers. The Rust frontend refuses tools without
            one.
        reasoning_parser: the parser of reasoning in answers, from which the Rust frontend takes its
            marks.
        without_effect: the options of the command line on which nothing here depends.

    Raises:
        ValueError: a value is not one of these.
    """

    engine: ClassVar[str] = "vllm"
    not_of_prompts: ClassVar[tuple[str, ...]] = (*OF_HASHES, *_OF_ANSWERS)
    model: str | None = None
    served_names: tuple[str, ...] = ()
    revision: str | None = None
    tokenizer_mode: str = "auto"
    chat_template: str | None = None
    content_format: str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    mm_processor_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    media_io_kwargs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    planned_sizes: bool = False
    media_refused: Mapping[str, str] = field(default_factory=dict, hash=False)
    interleaves_items: bool = False
    excludes_tools: bool = False
    reasoning_efforts: Mapping[str, str] = field(default_factory=dict, hash=False)
    dtype: str | None = None
    max_model_len: int | None = None
    allow_long_context: bool = False
    fits_memory: bool = False
    disable_sliding_window: bool = False
    hf_overrides: Mapping[str, Any] = field(default_factory=dict, hash=False)
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    hash_block_size: int | None = None
    hash_algorithm: str | None = None
    hash_seed: str | None = None
    speculative: Mapping[str, Any] = field(default_factory=dict, hash=False)
    prefix_caching: bool = True
    has_connector: bool = False
    tensor_parallel: int = 1
    hybrid_groups: bool = True
    context_parallel: bool = False
    identity_algorithm: str = "blake3"
    lora_in_identities: bool = False
    loras: Mapping[str, str] = field(default_factory=dict, hash=False)
    trust_request_mm_kwargs: bool = False
    trust_request_chat_template: bool = False
    media_domains: frozenset[str] = frozenset()
    local_media_path: str = ""
    max_image_pixels: int | None = None
    max_decoded_bytes: int | None = None
    processor_cache_off: bool = False
    offline: bool = False
    hashes_refused: str = ""
    system_instructions: bool = False
    from_modelscope: bool = False
    start_date: str | None = None
    complete: bool = False
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    without_effect: tuple[str, ...] = ()

    def __repr__(self) -> str:
        defaults = VllmSettings()
        shown = (
            f"{option.name}={value!r}"
            for option in fields(self)
            if (value := getattr(self, option.name)) != getattr(defaults, option.name)
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def model_string(self) -> str | None:
        """The engine's model string; None where the settings do not tell it."""
        return None if self.offline else self.model

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a positive integer, found {quoted(value)}")
        for modality in (*self.limits, *self.media_io_kwargs):
            if modality not in frozenset(Modality):
                known = ", ".join(Modality)
                raise ValueError(f"there is no modality {quoted(modality)}, only {known}")

    @staticmethod
    def from_args(arguments: str, *, config: str | os.PathLike[str] | None = None) -> VllmSettings:
        """See `mmroute.EngineSettings.from_args`; refuses lines that start another engine."""
        return as_vllm(EngineSettings.from_args(arguments, config=config))

    @classmethod
    def is_started_by(cls, _arguments: str) -> bool:
        """No line tells it: what starts no other engine is a part of vLLM's."""
        return False

    @classmethod
    def read(cls, arguments: str, config: str | None) -> VllmSettings:
        """The settings of a ``vllm serve`` command line, of the class of its frontend."""
        from mmroute.engines.vllm.serve_settings import read_settings  # rarely needed

        found = read_settings(arguments, config=config)
        own: type[VllmSettings] = cls
        if found.pop("rust", False):
            own = type(as_vllm(find_engine("vllm-rust").settings))
        try:
            return own(**found)
        except ValueError as error:
            raise wrong(str(error)) from None

    @classmethod
    def deciding(cls) -> frozenset[str]:
        from mmroute.engines.vllm.serve_settings import DECIDING  # rarely needed

        return DECIDING

    @classmethod
    def adopted(
        cls, transport: Transport, _frontend: str, given: str, config: str | None
    ) -> AdoptedLine:
        from mmroute.engines.vllm.reported import adopted_line  # loads httpcore

        return adopted_line(transport, given, config)

    def prompt_settings(self) -> Self:
        plain = VllmSettings()
        return replace(self, **{name: getattr(plain, name) for name in self.not_of_prompts})


def as_vllm(settings: EngineSettings) -> VllmSettings:
    """The settings of an engine that is vLLM."""
    if isinstance(settings, VllmSettings):
        return settings
    raise ModelError(
        Reason.UNSUPPORTED_ENGINE_SETTING,
        f"the command line starts {settings.engine}, and this takes vLLM alone",
    )
