"""``tokenizer.json`` through the `tokenizers` library, put together as the engine does it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import tokenizers

from mmroute.errors import ModelError, Reason
from mmroute.fast_paths import FastPaths
from mmroute.model.files import JsonValue, ModelFiles
from mmroute.tokenizers.choice import choose_encoder
from mmroute.tokenizers.formats.fast import HfTokenizer
from mmroute.tokenizers.pieces import Pieces, joins_pieces
from mmroute.tokenizers.pipelines import PIPELINES, Pipeline

__all__ = [
    "MATCHING_FLAGS",
    "MAX_TOKEN_ID",
    "all_special_tokens",
    "check_added_token",
    "configured_tokens",
    "load_hf_tokenizer",
    "named_special_tokens",
    "outside_of",
    "pieces_of",
]

_CONFIG = "tokenizer_config.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
          "mask_token")  # fmt: skip
_OTHER_VOCABULARIES = (
    "tokenizer.model", "tokenizer.model.v*", "tiktoken.model", "*.tiktoken", "vocab.json", "*.gguf",
)  # fmt: skip
MAX_TOKEN_ID: Final = 2**32 - 1
MATCHING_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
_FLAGS = (*MATCHING_FLAGS, "special")


def load_hf_tokenizer(
    files: ModelFiles, pipelines: Mapping[str, str], fast_paths: FastPaths
) -> HfTokenizer:
    """Load ``tokenizer.json`` with the added tokens of ``tokenizer_config.json`` merged in.

    Args:
        files: the model.
        pipelines: tokenizer class -> pipeline name, from the family spec; ``*`` is any class.
        fast_paths: who is to encode, and what is kept.

    Raises:
        ModelError: `missing_file`, `malformed_file`, `tokenizer_unverified`,
            `special_token_split`, `fast_encoder_unavailable`.
    """
    _check_not_another_format(files)
    config = files.object(_CONFIG)
    declared = dict(files.object("tokenizer.json")) or files.json("tokenizer.json")
    if not isinstance(declared, dict):
        raise ModelError(
            Reason.MALFORMED_FILE, f"{files.path('tokenizer.json')} must hold a JSON object."
        )
    pipeline = _pipeline(files, config, pipelines)
    declared.update(pipeline.overwrites)
    declared["truncation"] = declared["padding"] = None
    try:
        backend = tokenizers.Tokenizer.from_str(msgspec.json.encode(declared).decode())
    except Exception as error:  # `tokenizers` raises bare Exception
        raise ModelError(
            Reason.MALFORMED_FILE,
            f"{files.path('tokenizer.json')} is not a tokenizer that `tokenizers` "
            f"{tokenizers.__version__} can load: {error}",
        ) from error
    _merge_added_tokens(backend, files)
    _mark_special(backend, files, pipeline)
    _check_named_tokens(backend, files)
    bos = named_special_tokens(config).get("bos_token")
    return HfTokenizer(
        backend=backend,
        encoder=choose_encoder(backend, declared, fast_paths),
        bos_token_id=backend.token_to_id(bos) if bos is not None else None,
        named_tokens=all_special_tokens(config),
        pieces=pieces_of(backend, declared.get("decoder")),
    )


def pieces_of(backend: tokenizers.Tokenizer, decoder: JsonValue) -> Pieces | None:
    """The texts of single tokens, if the `decoder` of its tokenizer.json joins such."""
    if not joins_pieces(decoder):
        return None
    largest = max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
    return Pieces(backend.decode, largest)


def _check_not_another_format(files: ModelFiles) -> None:
    """Without a tokenizer.json the engine converts another vocabulary, in ways not checked.

    transformers 5.20.2 does so by rules that depend on model type and version: of a LLaVA-1.5
    directory with only a tokenizer.model it makes a tokenizer that loses the leading space.
    """
    others = [] if files.has("tokenizer.json") else files.names(_OTHER_VOCABULARIES)
    if others:
        raise ModelError(
            Reason.TOKENIZER_UNVERIFIED,
            f"{files.name} has no tokenizer.json, only {', '.join(others)}. The engine converts "
            "that, and to which IDs depends on its version. Save what it makes "
            "(`AutoTokenizer.from_pretrained(...).save_pretrained(...)`) and serve that directory; "
            "`mmroute.load_tokenizer` encodes with this one, without that promise.",
        )


def named_special_tokens(config: Mapping[str, JsonValue]) -> dict[str, str]:
    """`bos_token`, `eos_token`, … of a tokenizer_config.json, as chat templates see them.

    >>> named_special_tokens({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})
    {'bos_token': '<s>', 'eos_token': '</s>'}
    """
    named = {name: _content(config.get(name)) for name in _NAMED}
    extra = config.get("extra_special_tokens")
    if isinstance(extra, dict):
        named |= {name: _content(value) for name, value in extra.items()}
    return {name: text for name, text in named.items() if text is not None}


def _content(value: JsonValue) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def all_special_tokens(config: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """The texts of all tokens that a tokenizer_config.json names as special, each once.

    Also `image_token` and the like: any field of that form (transformers, v5).
    """
    specific = [_content(value) for name, value in config.items() if name.endswith("_token")]
    additional = config.get("additional_special_tokens")
    listed = map(_content, additional if isinstance(additional, list) else [])
    texts = [*named_special_tokens(config).values(), *specific, *listed]
    return tuple(dict.fromkeys(text for text in texts if text))


def _pipeline(
    files: ModelFiles, config: Mapping[str, JsonValue], pipelines: Mapping[str, str]
) -> Pipeline:
    declared = config.get("tokenizer_class")
    # transformers 5 dropped the suffix: both names load the same class.
    name = str(declared).removesuffix("Fast") if declared is not None else "*"
    chosen = pipelines.get(name, pipelines.get("*"))
    if chosen is None:
        raise _unverified(
            files,
            f"tokenizer_class is {declared!r}, and this family was checked only with "
            f"{', '.join(sorted(pipelines))}",
        )
    pipeline = PIPELINES[chosen]
    doubt = outside_of(pipeline, config)
    if doubt is not None:
        raise _unverified(files, f"{declared} {doubt}")
    return pipeline


def outside_of(pipeline: Pipeline, config: Mapping[str, JsonValue]) -> str | None:
    """The field of tokenizer_config.json that the class may read otherwise, in words, or None."""
    for field, allowed in pipeline.assumes.items():
        if config.get(field) not in allowed:
            values = " or ".join(map(repr, allowed))
            return f"with {field} {config.get(field)!r} was not checked, only {values}"
    return None


def _unverified(files: ModelFiles, why: str) -> ModelError:
    return ModelError(
        Reason.TOKENIZER_UNVERIFIED,
        f"{files.path(_CONFIG)}: {why}. The engine builds the tokenizer from this, so the same "
        "tokenizer.json could give other IDs.",
    )


def _merge_added_tokens(backend: tokenizers.Tokenizer, files: ModelFiles) -> None:
    """Add the special tokens that only tokenizer_config.json has, as transformers does.

    Qwen2-VL's ``<|image_pad|>`` is one: by tokenizer.json alone it is six ordinary tokens.
    """
    known = backend.get_added_tokens_decoder()
    for token_id, token in configured_tokens(files):
        if token_id in known:
            _check_same_flags(files, known[token_id], token)
            continue
        backend.add_tokens([token])
        if backend.token_to_id(token.content) != token_id:
            raise ModelError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"{files.path(_CONFIG)}: added_tokens_decoder gives {token.content!r} the ID "
                f"{token_id}, but added to tokenizer.json it gets "
                f"{backend.token_to_id(token.content)}.",
            )


def configured_tokens(files: ModelFiles) -> list[tuple[int, tokenizers.AddedToken]]:
    """The ``added_tokens_decoder`` of tokenizer_config.json, by ID.

    Raises:
        ModelError: `malformed_file`.
    """
    declared = files.object(_CONFIG).get("added_tokens_decoder") or {}
    if not isinstance(declared, dict):
        raise _malformed(files, "added_tokens_decoder must be an object")
    tokens = []
    for key, entry in declared.items():
        text = _content(entry)
        if not key.isdecimal() or not isinstance(entry, dict) or text is None:
            raise _malformed(files, f"added_tokens_decoder.{key} must be a token under its ID")
        flags = {flag: bool(entry.get(flag, False)) for flag in _FLAGS}
        check_added_token(files.path(_CONFIG), text, int(key))
        tokens.append((int(key), tokenizers.AddedToken(text, **flags)))
    return sorted(tokens, key=lambda pair: pair[0])


def check_added_token(path: Path, text: str, token_id: int) -> None:
    """Refuse what is no token: tiktoken looks for an empty one without an end.

    Raises:
        ModelError: `malformed_file`.
    """
    if not text:
        what = f"gives an empty text the ID {token_id}; remove that entry"
    elif not 0 <= token_id <= MAX_TOKEN_ID:
        what = f"gives {text!r} the ID {token_id}; an ID is at least 0 and at most {MAX_TOKEN_ID}"
    else:
        return
    raise ModelError(Reason.MALFORMED_FILE, f"{path} {what}.")


def _check_same_flags(
    files: ModelFiles, known: tokenizers.AddedToken, declared: tokenizers.AddedToken
) -> None:
    for flag in ("content", *MATCHING_FLAGS):
        if getattr(known, flag) != getattr(declared, flag):
            raise _unverified(
                files,
                f"added_tokens_decoder gives {declared.content!r} another {flag} than "
                f"tokenizer.json gives {known.content!r}",
            )


def _mark_special(backend: tokenizers.Tokenizer, files: ModelFiles, pipeline: Pipeline) -> None:
    """Make every added token special that has a name or is declared so, as transformers does.

    It changes no ID, only which tokens are left out when a text is decoded without them.
    """
    special = {*all_special_tokens(files.object(_CONFIG)), *pipeline.special}
    special |= {token.content for _, token in configured_tokens(files) if token.special}
    for token in backend.get_added_tokens_decoder().values():
        if token.content in special and not token.special:
            token.special = True
            backend.add_special_tokens([token])


def _check_named_tokens(backend: tokenizers.Tokenizer, files: ModelFiles) -> None:
    """Every token a configuration names must be one of the added tokens.

    transformers adds the others, those that are missing to the end of the vocabulary in an order
    that no file says. Without an added_tokens_decoder it reads two more files for them.
    """
    config = files.object(_CONFIG)
    named = dict.fromkeys(all_special_tokens(config), _CONFIG)
    if "added_tokens_decoder" not in config:
        also = files.object("special_tokens_map.json")
        if named_special_tokens(also).items() - named_special_tokens(config).items():
            raise _unverified(files, "special_tokens_map.json names other special tokens")
        named |= dict.fromkeys(all_special_tokens(also), "special_tokens_map.json")
        named |= dict.fromkeys(files.object("added_tokens.json"), "added_tokens.json")
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    for text, file in named.items():
        if text not in added:
            raise _unverified(
                files,
                f"{file} names the token {text!r}, which is not among the added_tokens of "
                "tokenizer.json",
            )


def _malformed(files: ModelFiles, why: str) -> ModelError:
    return ModelError(Reason.MALFORMED_FILE, f"{files.path(_CONFIG)}: {why}.")
