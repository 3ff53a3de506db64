"""The special tokens that a configuration gives a tokenizer, read as transformers reads them.

Source: transformers ``tokenization_utils_base.py`` (`_from_pretrained`, `__init__`) and
``tokenization_utils_tokenizers.py`` (`TokenizersBackend.__init__`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tokenizers

from mmroute.errors import ModelError, Reason, malformed
from mmroute.model_directory import JsonValue, ModelFiles
from mmroute.token_ids import MAX_TOKEN_ID

_CONFIG: Final = "tokenizer_config.json"
_STANDARD: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
                    "mask_token")  # fmt: skip
_FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized", "special")
_ADDED: Final = "added_tokens_decoder"
_EXTRA: Final = "extra_special_tokens"
_ADDITIONAL: Final = "additional_special_tokens"  # its older name


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The tokens of one configuration."""

    # The tokens to which the configuration gives an ID, by ID; not all are special.
    with_ids: tuple[tuple[int, tokenizers.AddedToken], ...]
    # The tokens with a name, such as `bos_token`, the standard names first.
    named: Mapping[str, tokenizers.AddedToken]
    extra: tuple[tokenizers.AddedToken, ...]  # the special tokens without a name

    @property
    def names(self) -> dict[str, str]:
        """The text of each named token, as chat templates see it."""
        return {name: token.content for name, token in self.named.items()}

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all special tokens, each once."""
        return tuple(dict.fromkeys(token.content for token in (*self.named.values(), *self.extra)))

    @property
    def foreseen(self) -> dict[int, tokenizers.AddedToken]:
        """The tokens that a tokenizer has after `add_to`, if the configuration gives all an ID."""
        named = {token.content for token in self.named.values()}
        tokens = {}
        for token_id, token in self.with_ids:
            flags = {flag: getattr(token, flag) for flag in _FLAGS}
            flags["special"] = token.special or token.content in named
            tokens[token_id] = tokenizers.AddedToken(token.content, **flags)
        return tokens

    def add_to(self, backend: tokenizers.Tokenizer) -> None:
        """Add the tokens as transformers does: these calls, in this order."""
        known = {token.content for token in backend.get_added_tokens_decoder().values()}
        tokens = [token for _, token in self.with_ids]
        known |= {token.content for token in tokens}
        for token in (*self.named.values(), *self.extra):
            if token.content not in known and token not in tokens:  # of duplicates the last counts
                tokens.append(token)
        named = {token.content for token in self.named.values()}
        for token in tokens:
            token.special = token.special or token.content in named
        backend.add_tokens(tokens)

    def check_ids(self, backend: tokenizers.Tokenizer, files: ModelFiles) -> None:
        """Refuse a tokenizer in which a token has another ID than in the configuration."""
        ids = ((token_id, token.content) for token_id, token in self.with_ids)
        check_ids(backend, ids, f"{files.path(_CONFIG)}: {_ADDED}")


def check_ids(backend: tokenizers.Tokenizer, ids: Iterable[tuple[object, str]], where: str) -> None:
    """Refuse a tokenizer in which a token has another ID than the place gives it."""
    for token_id, text in ids:
        actual = backend.token_to_id(text)
        if actual != token_id:
            raise ModelError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"{where} gives {text!r} the ID {token_id}, but added to this vocabulary it gets "
                f"{actual}.",
            )


def read_special_tokens(
    files: ModelFiles, defaults: Mapping[str, str] | None = None
) -> SpecialTokens:
    """The special tokens of tokenizer_config.json, or of the files that older models have instead.

    Without an ``added_tokens_decoder`` transformers reads special_tokens_map.json,
    added_tokens.json and the added tokens of tokenizer.json as well.
    """
    config = dict(files.object(_CONFIG))
    own: Mapping[str, JsonValue] = {}
    if not config.get(_EXTRA) and _ADDITIONAL in config:
        config[_EXTRA] = config.pop(_ADDITIONAL)
    if isinstance(named_extra := config.get(_EXTRA), dict):
        own = named_extra
        del config[_EXTRA]
    with_ids = _with_ids(files, config.get(_ADDED))
    if _ADDED not in config:
        config |= files.object("special_tokens_map.json")
        with_ids |= _of_added_tokens_json(files, config)
        with_ids |= _of_tokenizer_json(files)
    flags = {token.content: token for token in with_ids.values()}
    named = {}
    for name in _STANDARD:
        # An explicit null means no token: the default is not used.
        token = _token(config[name]) if name in config else _token((defaults or {}).get(name))
        if token is not None:
            named[name] = flags.get(token.content, token) if name in config else token
    for name, value in [*config.items(), *own.items()]:
        token = _token(value) if name.endswith("_token") or name in own else None
        if name not in _STANDARD and token is not None:
            named[name] = token
    extra = config.get(_EXTRA, config.get(_ADDITIONAL))
    listed = map(_token, extra if isinstance(extra, list) else ())
    return SpecialTokens(
        with_ids=tuple(sorted(with_ids.items())),
        named=named,
        extra=tuple(token for token in listed if token is not None),
    )


def _token(value: JsonValue) -> tokenizers.AddedToken | None:
    """Read a token from a configuration, which writes its text or an object with its flags."""
    if isinstance(value, str) and value:
        return tokenizers.AddedToken(value, special=True)
    if isinstance(value, dict) and isinstance(text := value.get("content"), str) and text:
        flags = {flag: bool(value[flag]) for flag in _FLAGS if flag in value}
        return tokenizers.AddedToken(text, **flags)
    return None


def _with_ids(files: ModelFiles, declared: JsonValue) -> dict[int, tokenizers.AddedToken]:
    if declared is None:
        return {}
    if not isinstance(declared, dict):
        raise _malformed(files, f"{_ADDED} must be an object")
    tokens = {}
    for key, entry in declared.items():
        if not key.isdecimal() or not isinstance(entry, dict):
            raise _malformed(files, f"{_ADDED}.{key} must be a token under its ID")
        tokens[int(key)] = _declared(files, files.path(_CONFIG), int(key), entry)
    return tokens


def _of_tokenizer_json(files: ModelFiles) -> dict[int, tokenizers.AddedToken]:
    listed = files.object("tokenizer.json").get("added_tokens")
    path = files.path("tokenizer.json")
    tokens = {}
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and type(token_id := entry.get("id")) is int:
            tokens[token_id] = _declared(files, path, token_id, entry)
    return tokens


def _declared(
    files: ModelFiles, path: Path, token_id: int, entry: Mapping[str, JsonValue]
) -> tokenizers.AddedToken:
    text = entry.get("content")
    if not isinstance(text, str):
        raise _malformed(files, f"{_ADDED}.{token_id} must be a token under its ID")
    check_added_token(path, text, token_id)
    flags = {flag: bool(entry[flag]) for flag in _FLAGS if flag in entry}
    return tokenizers.AddedToken(text, **flags)


def _of_added_tokens_json(
    files: ModelFiles, config: Mapping[str, JsonValue]
) -> dict[int, tokenizers.AddedToken]:
    extra = config.get(_EXTRA)
    values: Iterable[JsonValue] = [config.get(name) for name in _STANDARD]
    values = [*values, *(extra if isinstance(extra, list) else ())]
    special = {token.content for token in map(_token, values) if token is not None}
    tokens = {}
    for text, token_id in files.object("added_tokens.json").items():
        path = files.path("added_tokens.json")
        if type(token_id) is not int:
            raise malformed(f"{path}: {text!r} must have an ID, found {token_id!r}.")
        check_added_token(path, text, token_id)
        is_special = text in special
        tokens[token_id] = tokenizers.AddedToken(
            text, special=is_special, normalized=not is_special
        )
    return tokens


def check_added_token(path: Path, text: str, token_id: int) -> None:
    """Refuse an empty text, for which tiktoken would search for ever, and an impossible ID."""
    if not text:
        what = f"gives an empty text the ID {token_id}; remove that entry"
    elif not 0 <= token_id <= MAX_TOKEN_ID:
        what = f"gives {text!r} the ID {token_id}; an ID is at least 0 and at most {MAX_TOKEN_ID}"
    else:
        return
    raise malformed(f"{path} {what}.")


def _malformed(files: ModelFiles, why: str) -> ModelError:
    return malformed(f"{files.path(_CONFIG)}: {why}.")
