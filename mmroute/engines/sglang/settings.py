"""The settings of SGLang, from its own command line.

Source: SGLang 0.5.23 ``srt/server_args.py``, ``srt/environ.py`` (`EnvBool`),
``srt/arg_groups/overrides.py``, ``srt/mem_cache/events.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from mmroute.engine import AdoptedLine, EngineSettings
from mmroute.engines.sglang.page_size import BACKENDS, page_size_of
from mmroute.engines.shell_words import check_expanded, check_model, wrong
from mmroute.errors import ModelError, Reason, quoted
from mmroute.release import PYTHON
from mmroute.requests.items import Modality

if TYPE_CHECKING:
    from mmroute.net.transport import Transport

RUST_REFUSED: Final = (
    "SGLANG_RUST_SERVER: SGLang's Rust server is not covered. It renders, tokenizes and counts "
    "images by other code than its Python server, which runs where the variable is not set, and "
    "for which --backend sglang answers"
)
_RUST: Final = "SGLANG_RUST_SERVER"
_IPC: Final = "SGLANG_USE_CUDA_IPC_TRANSPORT"
_OFF: Final = ("", "0", "false", "n", "no")
_BIGRAMS: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP"})
_ENCODERS: Final = frozenset({"deepseekv32", "deepseekv4", "deepseekv41", "kimi_k3"})
_FORMATS: Final = ("default", "dynamo")
_PER_PROCESS: Final = 1 << 20

# Options under which prompts, identities or pages follow rules that are not covered, each with the
# values that are; None for no value.
_REFUSED: Final[Mapping[str, tuple[Any, ...]]] = {
    **dict.fromkeys(
        ("dllm_algorithm", "enable_flexkv", "enable_lmcache",
         "enable_unified_cache_external_linker", "encoder_only", "grpc_mode",
         "hf_chat_template_name", "is_embedding", "language_model_only", "language_only",
         "radix_cache_backend", "skip_tokenizer_init", "smg_grpc_mode"),
        (None,),
    ),
    "model_impl": (None, "auto", "sglang"),
    "model_type": (None, "llm", "auto"),
    "tokenizer_backend": (None, "huggingface"),
    "tokenizer_mode": (None, "auto"),
}  # fmt: skip
# Variables that change prompts, identities or pages, each with the values that do not.
_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("SGLANG_DSV41_REASONING_EFFORT", "SGLANG_DSV4_REASONING_EFFORT",
         "SGLANG_EXTERNAL_MM_MODEL_ARCH", "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE",
         "SGLANG_PLUGINS"),
        (),
    ),
    **dict.fromkeys(
        ("SGLANG_DEFAULT_THINKING", "SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES",
         "SGLANG_MM_SKIP_COMPUTE_HASH", "SGLANG_RADIX_FORCE_MISS",
         "SGLANG_USE_AITER_UNIFIED_ATTN", "SGLANG_USE_MODELSCOPE"),
        _OFF,
    ),
    "SGLANG_MM_AVOID_RETOKENIZE": ("1", "true", "y", "yes"),
}  # fmt: skip

_OF_PROMPTS: Final = (
    "model",  # its text decides the chat template
    "chat_template", "chat_template_kwargs", "context_length", "enable_multimodal", "max_items",
    "media_domains", "preprocess_cache_mb", "reasoning_parser", "tokenizer_workers",
    "tool_call_parser",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SglangSettings(EngineSettings):
    """The options with which SGLang was started. None or empty stands for its default.

    Attributes:
        model: the path of the model.
        served_names: the served name.
        revision: the branch, tag or commit on the hub.
        page_size: the number of tokens in a page, with context parallelism; None where the GPU
            decides.
        attention_backend: the backend of its attention; None where the GPU decides.
        reasoning_parser: as the option.
        tool_call_parser: as the option.
        radix_cache: whether it keeps pages for later requests.
        bigrams: whether its pages are of pairs of tokens, for speculative decoding.
        dynamo_events: whether its events are in Dynamo's format.
        chat_template: the template that replaces the model's own: its text, or the path of a file.
        chat_template_kwargs: the variables of templates that requests do not set.
        enable_multimodal: whether pictures are switched on, for families that have them off.
        context_length: the longest context; None for the model's own.
        max_items: the most items in one prompt, by modality.
        media_domains: the hosts of links that it follows; empty for all.
        loras: the path of each adapter, by its name.
        transformers: the version of transformers that it runs with; empty for the required one.
        mm_process_config: the arguments of its processors, by modality.
        disable_fast_image_processor: as the option.
        image_processor_backend: as the option.
        feature_transport: how features reach the model.
        preprocess_cache_mb: the size of its cache of processed pictures; None for none.
        tokenizer_workers: the number of processes among which that cache is divided.
        without_effect: the options on which nothing here depends.
        line: the command line that was read, the file of options below it, and the version of
            SGLang whose options it has; None if there is none.
    """

    engine: ClassVar[str] = "sglang"
    model: str | None = None
    served_names: tuple[str, ...] = ()
    revision: str | None = None
    page_size: int | None = None
    attention_backend: str | None = None
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    radix_cache: bool = True
    bigrams: bool = False
    dynamo_events: bool = False
    chat_template: str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    enable_multimodal: bool = False
    context_length: int | None = None
    max_items: Mapping[Modality, int] = field(default_factory=dict, hash=False)
    media_domains: frozenset[str] = frozenset()
    loras: Mapping[str, str] = field(default_factory=dict, hash=False)
    transformers: str = ""
    mm_process_config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    disable_fast_image_processor: bool = False
    image_processor_backend: str = "auto"
    feature_transport: str = "cpu"
    preprocess_cache_mb: int | None = None
    tokenizer_workers: int = 1
    without_effect: tuple[str, ...] = ()
    line: tuple[str, str | None, str] | None = field(default=None, compare=False, repr=False)

    @property
    def model_string(self) -> str | None:
        return self.model

    @property
    def caches_images(self) -> bool:
        """Whether it keeps processed pictures by their files."""
        return bool((self.preprocess_cache_mb or 0) * _PER_PROCESS // self.tokenizer_workers)

    def prompt_settings(self) -> Self:
        own: dict[str, Any] = {name: getattr(self, name) for name in _OF_PROMPTS}
        return replace(type(self)(), **own)

    @classmethod
    def adopted(
        cls, transport: Transport, frontend: str, given: str, _config: str | None
    ) -> AdoptedLine:
        from mmroute.engines.sglang.reported import adopted_line  # loads httpcore

        if frontend != PYTHON:
            raise _unsupported(RUST_REFUSED)
        return adopted_line(transport, given, _READ | _REFUSED.keys(), cls.deciding())

    @classmethod
    def deciding(cls) -> frozenset[str]:
        return frozenset({_RUST, _IPC, *_VARIABLES})

    @classmethod
    def is_started_by(cls, arguments: str) -> bool:
        from mmroute.engines.sglang.options import split_command, starts_sglang  # rarely needed

        try:
            environment, words = split_command(arguments)
        except ModelError:  # a quote is not closed
            return False
        return _is_on(environment, _RUST) or bool(words and starts_sglang(words[0]))

    @classmethod
    def read(cls, arguments: str, config: str | None) -> Self:
        """See `EngineSettings`. A line that only earlier versions take is read as theirs."""
        from mmroute.engines.sglang.options import reading_version  # rarely needed

        return cls._read(arguments, config, reading_version(arguments, config))

    def read_by(self, version: str) -> Self:
        """The same command line as another version of SGLang reads it."""
        if self.line is None or self.line[2] == version:
            return self
        return replace(self._read(*self.line[:2], version), transformers=self.transformers)

    @classmethod
    def _read(cls, arguments: str, config: str | None, version: str) -> Self:
        from mmroute.engines.sglang.options import parse_command

        environment, options = parse_command(arguments, config, version)
        if _is_on(environment, _RUST):
            raise _unsupported(RUST_REFUSED)
        for name in _READ & options.keys():
            for text in options[name] if isinstance(options[name], list) else [options[name]]:
                if isinstance(text, str):
                    check_expanded(_option(name), text)
        for name, harmless in _VARIABLES.items():
            if environment.get(name, "").lower() not in {"", *harmless}:
                raise _unsupported(f"{name}: its effect is not covered for SGLang")
        for name, covered in _REFUSED.items():
            if options.get(name) not in covered:
                raise _unsupported(f"{_option(name)}: its effect is not covered for SGLang")
        found = _found(dict(options), environment)
        unread = sorted(_option(name) for name in options.keys() - _READ)
        without = (*unread, *sorted(environment.keys() - cls.deciding()))
        return cls(**found, without_effect=without, line=(arguments, config, version))


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() not in _OFF


def _found(options: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    model = options.get("model_path")
    if model is not None:
        check_model(model)
    if options.get("tokenizer_path", model) != model:
        raise _unsupported("--tokenizer-path: the tokenizer of another path is not covered")
    name = options.get("served_model_name")
    template = options.get("chat_template")
    if template is not None and not template.endswith(".jinja"):
        raise _unsupported(
            f"--chat-template {quoted(template)}: a template that comes with the engine, or one in "
            "JSON, is not covered; a file of Jinja (.jinja) is"
        )
    parser = options.get("tool_call_parser")
    if parser in _ENCODERS:
        raise _unsupported(
            f"--tool-call-parser {parser}: it replaces the chat template, which is not covered"
        )
    events = _object("kv_events_config", options.get("kv_events_config"))
    form = events.get("format", "default")
    if form not in _FORMATS:
        raise wrong(f"--kv-events-config: format must be default or dynamo, found {quoted(form)}")
    overrides = _object("json_model_override_args", options.get("json_model_override_args"))
    if others := sorted(overrides.keys() - {"rope_scaling", "rope_parameters", "rope_theta"}):
        raise _unsupported(f"--json-model-override-args ({', '.join(others)}) is not covered")
    processing = _object("mm_process_config", options.get("mm_process_config"))
    if any(processing.get(modality) for modality in Modality):
        raise _unsupported("--mm-process-config: arguments of processors are not covered")
    transport = options.get("mm_feature_transport")
    if transport is None and _is_on(environment, _IPC):
        transport = "cuda_ipc"
    limits = _object("limit_mm_data_per_request", options.get("limit_mm_data_per_request"))
    slow_processor = options.get("disable_fast_image_processor", False)
    algorithm = str(options.get("speculative_algorithm") or "").upper()
    off = any(options.get(name) for name in ("disable_radix_cache", "enable_mis"))
    decodes = options.get("disaggregation_mode") == "decode"
    keeps = options.get("disaggregation_decode_enable_radix_cache")
    return {
        "model": model,
        "served_names": () if name is None else (name,),
        "revision": options.get("revision"),
        "page_size": page_size_of(options),
        "attention_backend": options.get("attention_backend"),
        "reasoning_parser": options.get("reasoning_parser"),
        "tool_call_parser": parser,
        "radix_cache": not off and not (decodes and not keeps),
        "bigrams": algorithm in _BIGRAMS,
        "dynamo_events": form == "dynamo",
        "chat_template": template,
        "chat_template_kwargs": _object(
            "default_chat_template_kwargs", options.get("default_chat_template_kwargs")
        ),
        "enable_multimodal": options.get("enable_multimodal", False),
        "context_length": options.get("context_length"),
        "max_items": dict(_item_limits(limits)),
        "media_domains": frozenset(options.get("allowed_media_domains") or ()),
        "loras": dict(map(_adapter, options.get("lora_paths") or ())),
        "mm_process_config": processing,
        "disable_fast_image_processor": slow_processor,
        "image_processor_backend": (
            "pil" if slow_processor else options.get("image_processor_backend", "auto")
        ),
        "feature_transport": transport or "cpu",
        "preprocess_cache_mb": options.get("mm_preprocess_cache_size_mb"),
        "tokenizer_workers": options.get("tokenizer_worker_num", 1),
    }


_MODALITIES: Final = frozenset(map(str, Modality))
_READ: Final = frozenset({
    *BACKENDS, "page_size", "dcp_size", "model_path", "served_model_name", "revision",
    "tool_call_parser", "json_model_override_args", "mm_process_config", "mm_feature_transport",
    "limit_mm_data_per_request", "speculative_algorithm", "disable_radix_cache", "enable_mis",
    "disaggregation_mode", "disaggregation_decode_enable_radix_cache", "chat_template",
    "default_chat_template_kwargs", "enable_multimodal", "context_length", "allowed_media_domains",
    "lora_paths", "disable_fast_image_processor", "image_processor_backend", "kv_events_config",
    "mm_preprocess_cache_size_mb", "reasoning_parser", "tokenizer_path", "tokenizer_worker_num",
})  # fmt: skip


def _item_limits(limits: Mapping[str, Any]) -> Iterator[tuple[Modality, int]]:
    for key, limit in limits.items():
        if type(limit) is not int:
            raise wrong(
                f"--limit-mm-data-per-request: {key} must be an integer, found {quoted(limit)}"
            )
        if key in _MODALITIES:
            yield Modality(key), limit


def _adapter(word: str) -> tuple[str, str]:
    """The name and the path of one word of ``--lora-paths``."""
    word = word.strip()
    if word.startswith("{"):
        adapter = _object("lora_paths", word)
        named, path = adapter.get("lora_name"), adapter.get("lora_path")
        if not isinstance(named, str) or not isinstance(path, str):
            raise wrong(f"--lora-paths {quoted(word)} needs lora_name and lora_path")
        return named, path
    name, equals, path = word.partition("=")
    return (name, path) if equals else (word, word)


def _object(name: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    try:
        found = json.loads(value)
    except ValueError as error:
        raise wrong(
            f"{_option(name)} must be a JSON object, found {quoted(value)}: {error}"
        ) from None
    if not isinstance(found, dict):
        raise wrong(f"{_option(name)} must be a JSON object, found {quoted(value)}")
    return found


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _unsupported(message: str) -> ModelError:
    return ModelError(Reason.UNSUPPORTED_ENGINE_SETTING, message)
