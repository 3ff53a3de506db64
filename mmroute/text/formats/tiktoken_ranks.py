"""tiktoken: OpenAI's encodings by name, and rank files (``*.tiktoken``) of model repositories.

A rank file holds byte sequences and their ranks. It has neither the regular expression that cuts
the text nor the special tokens. mmroute knows both for published files, which it recognizes by
their content, and for tokenizer classes that fix them in their code. For other files it takes the
special tokens from tokenizer_config.json.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import tiktoken

from mmroute.errors import ModelError, Reason, malformed
from mmroute.model_directory import ModelFiles
from mmroute.text.codec import Loaded
from mmroute.text.pieces import Pieces
from mmroute.token_ids import MAX_TOKEN_ID, TokenIds
from mmroute.tokenizers.formats.special_tokens import (
    SpecialTokens,
    read_special_tokens,
)

_CONFIG: Final = "tokenizer_config.json"
_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES: Final = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER: Final = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER: Final = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_NOT_HAN: Final = r"&&[^\p{Han}]"
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K: Final = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
)


def _by_case(tail: str, without: str = "") -> str:
    """An expression that begins a new word at a capital, as o200k and its descendants do."""
    upper, lower = f"[{_UPPER}{without}]", f"[{_LOWER}{without}]"
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{start}{upper}*{lower}+{_CONTRACTIONS}?|{start}{upper}+{lower}*{_CONTRACTIONS}?"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[{tail}]*{_SPACES}"
    )


_O200K: Final = _by_case(r"\r\n/")
_KIMI: Final = r"[\p{Han}]+|" + _by_case(r"\r\n", _NOT_HAN)
# Kimi's class first cuts a text into parts, and runs of (non-)space in them, of these lengths.
_LONGEST_TEXT: Final = 400_000
_LONGEST_RUN: Final = 25_000
_RUN: Final = re.compile(r"\s+|\S+")


@dataclass(frozen=True, slots=True)
class _Rule:
    """The rules for a rank file that the file itself does not hold."""

    pattern: str  # the regular expression that cuts the text
    specials: tuple[str, ...] = ()  # the special tokens, whose IDs follow the ranks, in order
    # The ID of the first special token; None for the ID after the last rank.
    first_special: int | None = None
    nfc: bool = False  # whether the text is first normalized to NFC
    in_runs: bool = False  # whether the text is first cut as `_in_runs` does


_QWEN1: Final = _Rule(
    _CL100K.replace(r"\p{N}{1,3}", r"\p{N}"),
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))),
    first_special=151643,
    nfc=True,
)
# tokenizer_class -> the rules in its code. Sources: Qwen/Qwen-7B ``tokenization_qwen.py``;
# moonshotai/Kimi-K2-Instruct ``tokenization_kimi.py``, whose names for IDs without one are these.
_CLASSES: Final = {
    "QWenTokenizer": _QWEN1,
    "TikTokenTokenizer": _Rule(_KIMI, ("<|reserved_token_{id}|>",) * 256, in_runs=True),
}
# SHA-256 of the rank file -> the rules that it was published with.
# Sources: tiktoken 0.14.0 ``tiktoken_ext/openai_public.py`` (r50k, p50k, cl100k, o200k);
# llama-models 0.3.0 ``llama3/tokenizer.py`` and ``llama4/tokenizer.py``; openai-whisper 20250625
# ``tokenizer.py`` (multilingual); dashscope 2.0.2 ``tokenizers/qwen_tokenizer.py``.
_PUBLISHED: Final = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": _Rule(_GPT2),
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": _Rule(_GPT2),
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": _Rule(_CL100K),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": _Rule(_O200K),
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": _Rule(_CL100K),
    "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed": _Rule(_O200K),
    "b34b360dbb493e781e479794586d661700670d65564001f23024971d1f2fa126": _Rule(_GPT2),
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186": _QWEN1,
}


@dataclass(frozen=True, slots=True)
class TiktokenCodec:
    """tiktoken as a `Codec`. Special tokens in a text become their IDs."""

    encoding: tiktoken.Encoding
    # The special tokens that decoding may leave out, and their IDs.
    special_tokens: Mapping[str, int]
    bos: tuple[int, ...] = ()  # the IDs put before a sequence
    eos: tuple[int, ...] = ()  # the IDs put after a sequence
    # The function applied to a text first; None for no normalization.
    normalize: Callable[[str], str] | None = None
    in_runs: bool = False  # whether the text is first cut as `_in_runs` does
    _special_ids: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_special_ids", frozenset(self.special_tokens.values()))

    @property
    def vocab_size(self) -> int:
        return self.encoding.n_vocab

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        text.encode()  # raises for a lone surrogate, which tiktoken would replace by U+FFFD
        if self.normalize is not None:
            text = self.normalize(text)
        parts = _in_runs(text) if self.in_runs else (text,)
        try:
            ids = [self.encoding.encode_to_numpy(part, allowed_special="all") for part in parts]
        except ValueError as error:  # its expression backtracks too far in a million spaces
            raise ValueError(
                f"tiktoken {tiktoken.__version__} cannot cut this text of {len(text)} characters: "
                f"{error}"
            ) from error
        if add_special_tokens:
            ids = [np.array(self.bos, np.uint32), *ids, np.array(self.eos, np.uint32)]
        return ids[0] if len(ids) == 1 else np.concatenate(ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        if skip_special_tokens:
            ids = [i for i in ids if i not in self._special_ids]
        try:
            return self.encoding.decode(ids)
        except KeyError:  # some ID is in a gap of the vocabulary and has no text
            return self.encoding.decode([i for i in ids if self._bytes(i) is not None])

    def token_id(self, token: str) -> int | None:
        try:
            return self.encoding.encode_single_token(token)
        except KeyError:
            return None

    def token(self, token_id: int) -> str | None:
        """See `Codec.token`. Bytes that are not UTF-8 on their own are written as hex."""
        piece = self._bytes(token_id)
        return None if piece is None else piece.decode("utf-8", "backslashreplace")

    def offsets(self, text: str, *, add_special_tokens: bool) -> list[tuple[int, int]] | None:
        if self.normalize is not None:
            return None
        ids = self.encode(text, add_special_tokens=False).tolist()
        _, starts = self.encoding.decode_with_offsets(ids)
        ends = [*starts[1:], len(text)]
        # A token that begins inside a character starts at that character here.
        places = [(start, max(end, start + 1)) for start, end in zip(starts, ends, strict=True)]
        before, behind = (self.bos, self.eos) if add_special_tokens else ((), ())
        return [(0, 0)] * len(before) + places + [(len(text), len(text))] * len(behind)

    def _bytes(self, token_id: int) -> bytes | None:
        try:
            return self.encoding.decode_single_token_bytes(token_id)
        except KeyError:
            return None


def openai_encoding(name: str) -> str | None:
    """The encoding for a name, which is that of an OpenAI model or of an encoding; else None.

    >>> openai_encoding("gpt-4o-2024-08-06"), openai_encoding("adapter")
    ('o200k_base', None)
    """
    if name in tiktoken.list_encoding_names():
        return name
    try:
        return tiktoken.encoding_name_for_model(name)
    except KeyError:
        return None


def load_openai_encoding(name: str) -> Loaded:
    """Load an encoding by its own name.

    tiktoken downloads the rank file, or takes it from ``TIKTOKEN_CACHE_DIR``.
    """
    try:
        encoding = tiktoken.get_encoding(name)
    except Exception as error:  # a download raises many types
        raise ModelError(
            Reason.MODEL_NOT_FOUND,
            f"The rank file of {name} could not be loaded: {error}. tiktoken downloads it at first "
            "use; without a network, put it into a directory under tiktoken's name for it and "
            "set TIKTOKEN_CACHE_DIR to that directory.",
        ) from error
    ids = {token: encoding.encode_single_token(token) for token in encoding.special_tokens_set}
    special = dict(sorted(ids.items(), key=lambda pair: pair[1]))
    return _loaded(TiktokenCodec(encoding, special), ())


def load_rank_file(path: Path, files: ModelFiles) -> Loaded:
    """Load a rank file, with the configuration in its directory."""
    content = path.read_bytes()
    ranks = _ranks(content, path)
    config = files.object(_CONFIG)
    declared = str(config.get("tokenizer_class"))
    rule = _CLASSES.get(declared)
    rule = rule or _PUBLISHED.get(hashlib.sha256(content).hexdigest())
    notes = []
    if rule is None:
        rule = _Rule(_CL100K)
        notes.append(
            f"{path.name} does not say which expression cuts the text, and neither its content "
            f"nor tokenizer_class {config.get('tokenizer_class')!r} is known: cl100k's expression "
            "is used, as transformers does; the engine may hold other IDs"
        )
    elif declared not in _CLASSES:
        notes.append(
            f"the publisher's IDs; an engine that converts {path.name} cuts text with cl100k's "
            "expression, as transformers does, and may hold other IDs"
        )
    special = read_special_tokens(files)
    specials = _specials(files, special, ranks, rule, _first_special(ranks, rule, path))
    _check_none_begins_another(specials, path)
    encoding = tiktoken.Encoding(
        path.name, pat_str=rule.pattern, mergeable_ranks=ranks, special_tokens=specials
    )
    if not specials:
        notes.append("no special tokens are known: tokenizer_config.json names none")
    named = special.names
    bos = [specials[t] for t in (named.get("bos_token"),) if t and config.get("add_bos_token")]
    eos = [specials[t] for t in (named.get("eos_token"),) if t and config.get("add_eos_token")]
    ordinary = {token.content for _, token in special.with_ids if not token.special}
    codec = TiktokenCodec(
        encoding,
        {text: token_id for text, token_id in specials.items() if text not in ordinary},
        tuple(bos),
        tuple(eos),
        partial(unicodedata.normalize, "NFC") if rule.nfc else None,
        rule.in_runs,
    )
    return _loaded(codec, notes)


def _loaded(codec: TiktokenCodec, notes: Sequence[str]) -> Loaded:
    pieces = Pieces(codec.decode, codec.vocab_size - 1)  # tiktoken decodes by joining bytes
    return Loaded("tiktoken", codec, tuple(notes), pieces=pieces)


def _in_runs(text: str) -> Iterator[str]:
    """The parts that Kimi's class gives to tiktoken one by one.

    Source: moonshotai/Kimi-K2-Instruct ``tokenization_kimi.py`` (`encode`).
    """
    for at in range(0, len(text) or 1, _LONGEST_TEXT):
        part = text[at : at + _LONGEST_TEXT]
        start = 0
        for run in _RUN.finditer(part) if len(part) > _LONGEST_RUN else ():
            for end in range(run.start() + _LONGEST_RUN, run.end(), _LONGEST_RUN):
                yield part[start:end]
                start = end
        yield part[start:]


def _ranks(content: bytes, path: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line:
            continue
        try:
            token, rank = _token_and_rank(line)
        except (ValueError, binascii.Error) as error:
            raise malformed(
                f"{path}, line {number}: must be a base64 token and its rank: {error}."
            ) from error
        if token in ranks:
            raise malformed(
                f"{path}, line {number}: its token has the rank {ranks[token]} already."
            )
        ranks[token] = rank
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing or len(set(ranks.values())) != len(ranks):
        what = f"has no token for byte {missing[0]}" if missing else "gives two tokens one rank"
        raise malformed(f"{path} {what}: the file is cut short or broken.")
    return ranks


def _token_and_rank(line: bytes) -> tuple[bytes, int]:
    written, rank = line.split()
    if not rank.isdigit() or int(rank) > MAX_TOKEN_ID:
        raise ValueError(f"{rank!r} is not a rank of 0 to {MAX_TOKEN_ID}")
    # Whisper's multilingual file writes an empty token as "=".
    return b"" if written == b"=" else base64.b64decode(written, validate=True), int(rank)


def _first_special(ranks: Mapping[bytes, int], rule: _Rule, path: Path) -> int:
    """The first ID after the ranks.

    A rule that fixes the IDs of its special tokens needs a rank for every ID below them.
    """
    first = max(ranks.values()) + 1
    expected = rule.first_special or first
    if rule.specials and not len(ranks) == first == expected:
        raise malformed(
            f"{path} has {len(ranks)} tokens with ranks up to {first - 1}; its class puts special "
            f"tokens at {expected} and needs every rank below: the file is cut short or broken."
        )
    return first


def _check_none_begins_another(specials: Collection[str], path: Path) -> None:
    """Refuse special tokens of which one begins another.

    Of two that match in a text, tiktoken takes the one that its hash table gives first.
    """
    for shorter, longer in pairwise(sorted(specials)):
        if longer.startswith(shorter):
            raise ModelError(
                Reason.UNSUPPORTED_TOKENIZER,
                f"{path}: the special token {longer!r} begins with {shorter!r}, another one, and "
                "which of them tiktoken finds in a text is not determined. Rename one of them, or "
                "load a tokenizer.json of this model.",
            )


def _specials(
    files: ModelFiles, special: SpecialTokens, ranks: Mapping[bytes, int], rule: _Rule, first: int
) -> dict[str, int]:
    """The IDs of the special tokens, by text: the rule's, replaced by the configuration's."""
    by_id = {first + i: text.format(id=first + i) for i, text in enumerate(rule.specials)}
    for token_id, token in special.with_ids:
        if token_id < first and ranks.get(token.content.encode()) != token_id:
            raise ModelError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"{files.path(_CONFIG)}: {token.content!r} has the ID {token_id}, which is "
                f"another token's in the rank file (its ranks end at {first - 1}).",
            )
        by_id[token_id] = token.content
    specials = {text: token_id for token_id, text in by_id.items()}
    for text in special.texts:
        if text not in specials:
            raise ModelError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"{files.path(_CONFIG)} names {text!r} as a special token, and neither its "
                "added_tokens_decoder nor the rank file gives it an ID.",
            )
    return dict(sorted(specials.items(), key=lambda pair: pair[1]))
