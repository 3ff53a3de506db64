"""Reads engine settings from the options of ``vllm serve``, and refuses those not covered.

Source: vLLM ``envs.py`` and ``engine/arg_utils.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mmroute.engines.shell_words import check_expanded, wrong
from mmroute.engines.vllm.identity import HASHERS
from mmroute.engines.vllm.overrides import check_overrides
from mmroute.engines.vllm.serve_command import (
    OWN_TOKENIZER_MODES,
    ServeCommand,
    Value,
    is_automatic,
    parse_command,
)
from mmroute.errors import ModelError, Reason, did_you_mean, quoted
from mmroute.hashing import Algorithm
from mmroute.requests.items import Modality

_DECIMAL: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NOTHING: Final = ("", "{}", "null", "None")

# Options that change the token IDs of every text in ways that are not covered, or leave nothing to
# generate, with the values that change nothing.
_REFUSED: Final[Mapping[str, tuple[object, ...]]] = {
    "config-format": ("auto", "hf", "mistral"),
    "convert": ("auto", "none"),
    "model-impl": ("auto", "vllm", "transformers"),
    "runner": ("auto", "generate"),
    "skip-tokenizer-init": (False,),
    "tokenizer-mode": ("auto", "hf", *OWN_TOKENIZER_MODES),
}
# Options whose value must be that of another one, or the model.
_SAME: Final[Mapping[str, str]] = {
    "hf-config-path": "model", "tokenizer": "model", "tokenizer-revision": "revision",
}  # fmt: skip
# Options and variables that change the tokens or identities of items alone, with these modalities.
_MEDIA_REFUSED: Final[Mapping[str, tuple[tuple[object, ...], tuple[Modality, ...]]]] = {
    "model-class-overrides": (_NOTHING, tuple(Modality)),
    "model-impl": (("auto", "vllm"), tuple(Modality)),
    "video-pruning-rate": (("0", "0.0"), (Modality.VIDEO,)),
    "VLLM_MEDIA_CONNECTOR": (("http",), tuple(Modality)),
    "VLLM_VIDEO_LOADER_BACKEND": (("opencv",), (Modality.VIDEO,)),
}
# Options under which block hashes cover more than the prompt, or blocks have other sizes.
_HASHES_REFUSED: Final[Mapping[str, tuple[object, ...]]] = {
    "default-mm-loras": _NOTHING,
    "diffusion-config": _NOTHING,
    "model-class-overrides": _NOTHING,
}
_TRUE: Final = ("1", "true", "yes", "on")
_NONE: Final = ("", "null", "None")
_CONTEXT_PARALLEL: Final = ("decode-context-parallel-size", "prefill-context-parallel-size")
_CONNECTORS: Final = ("kv-offloading-size", "kv-transfer-config")
_SPECULATIVE: Final = {
    "spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens",
}  # fmt: skip


def read_settings(arguments: str, *, config: str | None = None) -> dict[str, Any]:
    """The fields of `VllmSettings` that a command line sets, and `rust` for that frontend."""
    command = parse_command(arguments, config=config)
    _check_expanded(command)
    for name, harmless in _REFUSED.items():
        value = command.options.get(name)
        if value is not None and value not in harmless:
            raise _unsupported(
                f"--{name} {'' if isinstance(value, bool) else quoted(value)}".rstrip(),
                "changes token IDs in a way that is not covered",
            )
    return _effects(command)


def _check_expanded(command: ServeCommand) -> None:
    """Check the settings that decide something: a `--port $PORT` may stay as it is."""
    options = {f"--{name}": value for name, value in command.options.items()}
    for name, value in {**command.environment, **options}.items():
        if name in DECIDING and not isinstance(value, bool):
            check_expanded(name, value if isinstance(value, str) else " ".join(value))


def _effects(command: ServeCommand) -> dict[str, Any]:
    """The fields of the settings; every option not read on the way is without effect."""
    given = dict(command.options)
    found: dict[str, Any] = {"model": command.model, "complete": command.complete}
    same = {**given, "model": command.model}
    for option, other in _SAME.items():
        value = given.pop(option, None)
        if value is not None and value != same.get(other):
            raise _unsupported(f"--{option} {quoted(value)}", f"is not the {other}'s own")
    hashes_refused = [
        name
        for name, harmless in _HASHES_REFUSED.items()
        if (value := given.get(name)) is not None and value not in harmless
    ]
    found["hashes_refused"] = ", ".join(f"--{name}" for name in hashes_refused)
    found["media_refused"] = _media_refused(command)
    found["fits_memory"] = is_automatic(given.get("max-model-len"))
    if (limits := given.get("limit-mm-per-prompt")) is not None:
        found["planned_sizes"] = _plans_sizes(limits)
    for option, (name, read) in _READ.items():
        if option in given:
            found[name] = read(option, given.pop(option))
    found["speculative"] = _speculative(given)
    sharded = [_integer(name, given.pop(name)) for name in _CONTEXT_PARALLEL if name in given]
    found["context_parallel"] = max(sharded, default=1) > 1
    connectors = [given.pop(name, None) for name in _CONNECTORS]
    found["has_connector"] = any(value not in (None, *_NONE) for value in connectors)
    if (ranks := given.pop("tensor-parallel-size", None)) is not None:
        found["tensor_parallel"] = _integer("tensor-parallel-size", ranks)
    found["hybrid_groups"] = not given.pop("disable-hybrid-kv-cache-manager", False)
    if given.pop("language-model-only", False):
        found["limits"] = dict.fromkeys(Modality, 0)
    environment = dict(command.environment)
    for variable, (name, read) in _READ_ENVIRONMENT.items():
        if variable in environment:
            found[name] = read(variable, environment.pop(variable))
    others = given.keys() - _REFUSED.keys() - _MEDIA_REFUSED.keys() - set(hashes_refused)
    environment = {name: environment[name] for name in environment.keys() - _MEDIA_REFUSED.keys()}
    found["without_effect"] = (*sorted(f"--{name}" for name in others), *sorted(environment))
    return found


def _media_refused(command: ServeCommand) -> Mapping[str, str]:
    """For each modality, the options that change its items."""
    found: dict[str, list[str]] = {}
    given = {**command.options, **command.environment}
    for name, (harmless, modalities) in _MEDIA_REFUSED.items():
        if (value := given.get(name)) is not None and value not in harmless:
            for modality in modalities:
                found.setdefault(modality, []).append(name if name.isupper() else f"--{name}")
    return {modality: ", ".join(names) for modality, names in found.items()}


def _unsupported(setting: str, why: str) -> ModelError:
    return ModelError(
        Reason.UNSUPPORTED_ENGINE_SETTING,
        f"{setting}: {why}. Requests to this engine cannot be answered exactly.",
    )


def _string(name: str, value: Value) -> str:
    if not isinstance(value, str):
        raise wrong(f"{name} must have one value, found {quoted(value)}")
    return value


def _flag(name: str, value: Value) -> bool:
    return value if isinstance(value, bool) else _string(name, value).lower() in _TRUE


def _hash_seed(name: str, value: Value) -> str:
    text = _string(name, value)
    number = re.fullmatch(r"\s*\+?[0-9]+", text)
    if text not in ("", "random") and not (number and int(text) < 2**32):
        raise wrong(
            f"{name} must be random or an integer from 0 to 4294967295, found {quoted(text)}: "
            "Python does not start with it"
        )
    return text


def _is_rust(name: str, value: Value) -> bool:
    try:
        return bool(int(_string(name, value)))
    except ValueError:
        raise wrong(f"{name} must be 0 or 1, found {quoted(value)}") from None


def _dtype(name: str, value: Value) -> str | None:
    known = "auto", "bfloat16", "float", "float16", "float32", "half"
    text = _one_of(*known)(name, value)
    return {"auto": None, "float": "float32", "half": "float16"}.get(text, text)


def _is_zero(name: str, value: Value) -> bool:
    text = _string(name, value)
    try:
        return float(text) == 0
    except ValueError:
        raise wrong(f"{name} must be a number, found {quoted(text)}") from None


def _integer(name: str, value: Value) -> int:
    """``8192``, ``8k`` (8,000) or ``8K`` (8,192)."""
    text = _string(name, value).strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)", text)
    if match is None or ("." in match[1] and match[2] not in _DECIMAL):
        raise wrong(f"{name} must be an integer, found {quoted(text)}")
    scale = _DECIMAL.get(match[2]) or _BINARY.get(match[2]) or 1
    return int(float(match[1]) * scale) if "." in match[1] else int(match[1]) * scale


def _context(name: str, value: Value) -> int | None:
    return None if is_automatic(value) else _integer(name, value)


def _mapping(name: str, value: Value) -> Mapping[str, Any]:
    try:
        found = json.loads(_string(name, value))
    except ValueError as error:
        raise wrong(f"--{name} must be a JSON object: {error}") from None
    if found is not None and not isinstance(found, dict):
        raise wrong(f"--{name} must be a JSON object, found {quoted(found)}")
    return found or {}


def _efforts(name: str, value: Value) -> Mapping[str, Any]:
    return {} if value in _NOTHING else _mapping(name, value)


def _overrides(name: str, value: Value) -> Mapping[str, Any]:
    found = {} if value in _NOTHING else _mapping(name, value)
    check_overrides(found)
    return found


def _speculative(given: dict[str, Value]) -> Mapping[str, Any]:
    """The configuration of speculative decoding, taken out of the options."""
    option = "speculative-config"
    found = _mapping(option, given.pop(option)) if option in given else {}
    config = {key.replace("-", "_"): value for key, value in found.items()}
    for name, key in _SPECULATIVE.items():
        if name in given:
            if key in config:
                raise wrong(f"--{name} and --{option}.{key} are given both")
            read = _integer if key == "num_speculative_tokens" else _string
            config[key] = read(name, given.pop(name))
    tokens = config.get("num_speculative_tokens")
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        raise wrong(f"--{option}: num_speculative_tokens must be above 0, found {quoted(tokens)}")
    return config


def _limits(name: str, value: Value) -> Mapping[str, int]:
    limits = {}
    for modality, limit in _mapping(name, value).items():
        count = limit.get("count", 999) if isinstance(limit, dict) else limit
        if type(count) is not int or count < 0:
            raise wrong(f"--{name}: {modality} must have a number, found {quoted(limit)}")
        limits[modality] = count
    return limits


def _plans_sizes(limits: Value) -> bool:
    """Whether the option gives sizes of items, for which the engine then plans its cache."""
    return any(
        isinstance(limit, dict)
        and limit.get("count") != 0
        and any(size is not None for option, size in limit.items() if option != "count")
        for limit in _mapping("limit-mm-per-prompt", limits).values()
    )


def _words(name: str, value: Value) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise wrong(f"--{name} must have values, found {quoted(value)}")
    return tuple(value)


def _loras(name: str, value: Value) -> Mapping[str, str]:
    found = {}
    for text in _words(name, value):
        lora: Any
        path: Any
        lora, equals, path = text.partition("=")
        if not equals or "," in text:
            module = _mapping(name, text)
            lora, path = module.get("name"), module.get("path")
        if not (isinstance(lora, str) and isinstance(path, str) and lora and path):
            raise wrong(f"--{name} must be NAME=PATH, found {quoted(text)}")
        found[lora] = path
    return found


def _one_of(*known: str) -> Callable[[str, Value], str]:
    def read(name: str, value: Value) -> str:
        text = _string(name, value)
        if text not in known:
            hint = did_you_mean(text, known)
            raise wrong(f"--{name} must be one of {', '.join(known)}, found {quoted(text)}{hint}")
        return text

    return read


def _content_format(name: str, value: Value) -> str | None:
    text = _one_of("auto", "openai", "string")(name, value)
    return None if text == "auto" else text


_READ: Final[Mapping[str, tuple[str, Callable[[str, Value], Any]]]] = {
    "allowed-local-media-path": ("local_media_path", _string),
    "allowed-media-domains": ("media_domains", lambda name, value: frozenset(_words(name, value))),
    "block-size": ("block_size", _integer),
    "chat-template": ("chat_template", _string),
    "chat-template-content-format": ("content_format", _content_format),
    "enable-prefix-caching": ("prefix_caching", _flag),
    "default-chat-template-kwargs": ("chat_template_kwargs", _mapping),
    "disable-sliding-window": ("disable_sliding_window", _flag),
    "dtype": ("dtype", _dtype),
    "enable-tower-connector-lora": ("lora_in_identities", _flag),
    "exclude-tools-when-tool-choice-none": ("excludes_tools", _flag),
    "hf-overrides": ("hf_overrides", _overrides),
    "limit-mm-per-prompt": ("limits", _limits),
    "lora-modules": ("loras", _loras),
    "interleave-mm-strings": ("interleaves_items", _flag),
    "max-model-len": ("max_model_len", _context),
    "max-num-batched-tokens": ("max_num_batched_tokens", _integer),
    "media-io-kwargs": ("media_io_kwargs", _mapping),
    "mm-hasher-algorithm": ("identity_algorithm", _one_of(*HASHERS)),
    "mm-processor-cache-gb": ("processor_cache_off", _is_zero),
    "mm-processor-kwargs": ("mm_processor_kwargs", _mapping),
    "prefix-caching-hash-algo": ("hash_algorithm", _one_of(*Algorithm)),
    "prefix-match-unit": ("hash_block_size", _integer),
    "reasoning-effort-map": ("reasoning_efforts", _efforts),
    "reasoning-parser": ("reasoning_parser", _string),
    "revision": ("revision", _string),
    "served-model-name": ("served_names", _words),
    "tokenizer-mode": ("tokenizer_mode", _string),
    "tool-call-parser": ("tool_parser", _string),
    "trust-request-chat-template": ("trust_request_chat_template", _flag),
    "trust-request-mm-kwargs": ("trust_request_mm_kwargs", _flag),
}  # fmt: skip
_READ_ENVIRONMENT: Final[Mapping[str, tuple[str, Callable[[str, Value], Any]]]] = {
    "HF_HUB_OFFLINE": ("offline", _flag),
    "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS": (
        "system_instructions",
        lambda name, value: not _is_zero(name, value),
    ),
    "VLLM_USE_MODELSCOPE": ("from_modelscope", _flag),
    "PYTHONHASHSEED": ("hash_seed", _hash_seed),
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": ("allow_long_context", _flag),
    "VLLM_MAX_IMAGE_PIXELS": ("max_image_pixels", _integer),
    "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES": ("max_decoded_bytes", _integer),
    "VLLM_SYSTEM_START_DATE": ("start_date", _string),
    "VLLM_USE_RUST_FRONTEND": ("rust", _is_rust),
}
OPTIONS: Final[Mapping[str, str]] = {
    **{name: f"--{option}" for option, (name, _) in _READ.items()},
    **{name: variable for variable, (name, _) in _READ_ENVIRONMENT.items()},
}
"""Field of the settings -> the option or variable that sets it."""
DECIDING: Final = frozenset({
    *(f"--{name}" for name in (*_READ, *_REFUSED, *_HASHES_REFUSED, *_SPECULATIVE)),
    *(name if name.isupper() else f"--{name}" for name in _MEDIA_REFUSED),
    *(f"--{name}" for name in _SAME),
    *(f"--{name}" for name in (*_CONNECTORS, *_CONTEXT_PARALLEL)), "--speculative-config",
    "--language-model-only",
    *_READ_ENVIRONMENT,
})  # fmt: skip
"""The options and variables on which token IDs, identities or hashes depend."""
