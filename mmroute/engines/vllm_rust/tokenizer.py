"""The tokenizer of vLLM's Rust frontend: a file as it is written, without a class that rebuilds it.

Source: vLLM ``rust/src/tokenizer/src/hf.rs``,
``rust/src/tokenizer/src/hf/added_tokens.rs``, ``rust/src/text/src/backend/hf/config.rs``,
``model_files.rs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import tokenizers

from mmroute.errors import ModelError, Reason, malformed, needs_extra, quoted
from mmroute.model_directory import ModelFiles
from mmroute.reuse.fast_paths import EncoderStats, FastPaths
from mmroute.token_ids import TokenIds
from mmroute.tokenizers.encoder_choice import choose_encoder
from mmroute.tokenizers.encoders import Encoder, ReferenceEncoder
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer, joins_pieces
from mmroute.tokenizers.formats.special_tokens import check_ids
from mmroute.tokenizers.formats.tokenizer_json import backend_of

if TYPE_CHECKING:
    from mmroute.tokenizers.formats.mistral import MistralTokenizer

_FORMAT: Final = "tokenizer.json"
_CONFIG: Final = "tokenizer_config.json"
_NAMED: Final = ("bos_token", "eos_token", "unk_token", "pad_token")
_FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized", "special")
# The first is preferred to tokenizer.json, the others are read in place of it.
_TEKKEN: Final = "tekken.json"
_RANKS: Final = ("tiktoken.model", "*.tiktoken")
_TIKTOKEN: Final = "tiktoken"
# Of these the versions of Unicode differ that the frontend's encoder and `tokenizers` know: whether
# the first is whitespace, and what the others are composed of.
_UNSURE: Final = frozenset("\u180e\U000113c2\U0001611e\U00016d67")


def load_tokenizer(files: ModelFiles, fast_paths: FastPaths) -> HfTokenizer | MistralTokenizer:
    """Load the tokenizer of a model as the frontend does."""
    if files.has(_TEKKEN):
        return _load_tekken(files)
    _check_is_read(files)
    declared: dict[str, Any] = dict(files.object(_FORMAT))
    if not isinstance(declared.get("model"), dict):
        files.json(_FORMAT)  # which says what is wrong with the file, if it is none of JSON
        raise malformed(f"{files.path(_FORMAT)} must hold a JSON object with a model.")
    if _pads_batches_alone(declared.get("padding")):
        declared["padding"] = None
    for name in ("truncation", "padding"):
        if declared.get(name) is not None:
            raise _unverified(files, f"{_FORMAT}:{name} is set, which was not checked")
    added = _added_tokens(files, declared)
    declared["added_tokens"] = added
    backend = backend_of(files, declared)
    check_ids(backend, ((token["id"], token["content"]) for token in added), files.name)
    names = _named_tokens(files)
    bos = names.get("bos_token")
    return HfTokenizer(
        backend=backend,
        encoder=_SureEncoder(choose_encoder(backend, declared, fast_paths)),
        bos_token_id=backend.token_to_id(bos) if bos is not None else None,
        named_tokens=tuple(dict.fromkeys(names.values())),
        template_tokens=names,
        joins_pieces=joins_pieces(declared.get("decoder")),
        vocabulary=declared["model"].get("vocab"),
    )


def _check_is_read(files: ModelFiles) -> None:
    """Refuse a model whose file of ranks is read: it has no other, or its class says so."""
    named = files.object(_CONFIG).get("tokenizer_class")
    by_class = isinstance(named, str) and _TIKTOKEN in named.lower()
    ranks = files.names(_RANKS)
    if ranks and (by_class or not files.has(_FORMAT)):
        raise _unverified(files, f"the frontend reads {', '.join(ranks)}, which was not compared")


def _load_tekken(files: ModelFiles) -> MistralTokenizer:
    """The tokenizer of Mistral's own file, to which special tokens in a rendered chat are text.

    Source: vLLM ``rust/src/tokenizer/src/tekken.rs``.
    """
    path = files.path(_TEKKEN)
    with needs_extra("mistral", "mistral_common", f"{path} is a tokenizer of Mistral's. It"):
        from mmroute.tokenizers.formats.mistral import MistralTokenizer, load_backend
    return MistralTokenizer(load_backend(path, tekken=True), template_tokens=_named_tokens(files))


def _pads_batches_alone(padding: object) -> bool:
    """Whether it pads to the longest text of a batch: a prompt is encoded for itself."""
    if not isinstance(padding, dict):
        return False
    return padding.get("strategy") == "BatchLongest" and not padding.get("pad_to_multiple_of")


def ordinary_encoder(files: ModelFiles) -> Encoder:
    """An encoder that knows no added token: each is text as any other."""
    declared = {**files.object(_FORMAT), "padding": None, "added_tokens": []}
    backend = tokenizers.Tokenizer.from_str(msgspec.json.encode(declared).decode())
    return _SureEncoder(ReferenceEncoder(backend, "the only one without added tokens"))


class _SureEncoder:
    """An encoder that declines what the frontend's own encoder reads otherwise."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        _check_sure(text)
        return self._encoder.encode(text, add_special_tokens=add_special_tokens)

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        _check_sure(text)
        return self._encoder.encode_cut(text)

    def stats(self) -> EncoderStats:
        return self._encoder.stats()


def _check_sure(text: str) -> None:
    if not text.isascii() and not _UNSURE.isdisjoint(text):
        unsure = ", ".join(sorted(f"U+{ord(char):04X}" for char in _UNSURE.intersection(text)))
        raise ValueError(f"the engine's encoder knows another version of Unicode for {unsure}")


def _added_tokens(files: ModelFiles, declared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tokens of the file, and behind them those whose IDs the configuration alone has."""
    listed = declared.get("added_tokens") or []
    config = files.object(_CONFIG).get("added_tokens_decoder") or {}
    if not isinstance(listed, list) or not isinstance(config, dict):
        raise malformed(f"{files.name}: added tokens must be listed, or stand under their IDs.")
    known = {entry.get("id") for entry in listed if isinstance(entry, dict)}
    extra = {int(key): entry for key, entry in config.items() if key.isdecimal()}
    more = [(token_id, entry) for token_id, entry in sorted(extra.items()) if token_id not in known]
    tokens = [_added_token(files, entry.get("id"), entry) for entry in listed]
    return tokens + [_added_token(files, token_id, entry) for token_id, entry in more]


def _added_token(files: ModelFiles, token_id: object, entry: object) -> dict[str, Any]:
    content = entry.get("content") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(content, str) or not content:
        raise malformed(f"{files.name} has an added token without a text: {quoted(entry)}")
    flags = {name: bool(entry.get(name, False)) for name in _FLAGS}
    return {"id": token_id, "content": content, **flags}


def _named_tokens(files: ModelFiles) -> dict[str, str]:
    """Name -> text, as chat templates see them. Other files than the configuration are not read."""
    config = files.object(_CONFIG)
    names: dict[str, str] = {}
    for name in _NAMED:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            names[name] = text
        elif value is not None:
            raise malformed(f"{files.path(_CONFIG)}: {name} is no token, found {quoted(value)}.")
    return names


def _unverified(files: ModelFiles, why: str) -> ModelError:
    return ModelError(Reason.TOKENIZER_UNVERIFIED, f"{files.name}: {why}.")
