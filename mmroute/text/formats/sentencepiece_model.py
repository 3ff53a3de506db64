"""SentencePiece models (``tokenizer.model``), with added tokens, which the library lacks.

sentencepiece itself finds no special token in a text. Here a text is first cut at its added tokens,
and each piece between them is encoded on its own. The field ``legacy`` of tokenizer_config.json
says which pieces get the model's leading space: all of them, or only one at the beginning of the
text. transformers gave the field that meaning (v4 ``tokenization_llama.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from mmroute.errors import ModelError, Reason, malformed, needs_extra
from mmroute.model_directory import ModelFiles
from mmroute.text.codec import Loaded
from mmroute.token_ids import TokenIds
from mmroute.tokenizers.formats.special_tokens import read_special_tokens

_SPACE: Final = r"[^\S\x1c-\x1f]*"  # Unicode's White_Space, which Python's \s goes beyond


@dataclass(frozen=True, slots=True)
class AddedToken:
    """One added token."""

    token_id: int
    special: bool = True  # whether decoding with `skip_special_tokens` leaves the token out
    lstrip: bool = False  # whether the token swallows the white space before it
    rstrip: bool = False  # whether the token swallows the white space after it


class AddedTokenSplitter:
    """Splits a text at the leftmost, then longest, of its added tokens."""

    def __init__(self, tokens: Mapping[str, AddedToken]) -> None:
        self._tokens = dict(tokens)
        ordered = sorted(filter(None, tokens), key=len, reverse=True)
        alternatives = [_expression(text, tokens[text]) for text in ordered]
        self._pattern = re.compile("|".join(alternatives)) if alternatives else None

    def split(self, text: str) -> Iterator[tuple[int, str, int | None]]:
        """The parts of a text: start, text, and the ID if the part is an added token."""
        at = 0
        for match in self._pattern.finditer(text) if self._pattern is not None else ():
            if match.start() > at:
                yield at, text[at : match.start()], None
            token = match[match.lastindex or 0]  # without the white space that it swallowed
            yield match.start(), token, self._tokens[token].token_id
            at = match.end()
        if at < len(text):
            yield at, text[at:], None


def _expression(text: str, token: AddedToken) -> str:
    if not (token.lstrip or token.rstrip):
        return re.escape(text)
    return f"{_SPACE * token.lstrip}({re.escape(text)}){_SPACE * token.rstrip}"


_CONFIG: Final = "tokenizer_config.json"
_SHOWN: Final = 3  # the number of tokens that a note lists
# A second normalizer_spec with add_dummy_prefix false: messages that occur twice are merged.
_NO_PREFIX: Final = b"\x1a\x02\x18\x00"
_NOTE: Final = (
    "the IDs that sentencepiece and this model's added tokens give; an engine that has only a "
    "tokenizer.model converts it first, and with transformers 5 the outcome depends on the model "
    "type (some lose the leading space), so these are not promised to be the engine's"
)


class SentencePieceCodec:
    """sentencepiece as a `Codec`. Immutable."""

    def __init__(
        self,
        plain: Any,
        prefixed: Callable[[str], list[int]] | None,
        added: Mapping[str, AddedToken],
        *,
        every_piece: bool,
        bos: tuple[int, ...],
        eos: tuple[int, ...],
        hidden: frozenset[int] = frozenset(),
    ) -> None:
        self._plain = plain
        self._prefixed = prefixed
        self._every_piece = every_piece
        self._added = added
        self._around = bos, eos
        self._hidden = hidden
        self._texts = {token.token_id: text for text, token in added.items()}
        self._splitter = AddedTokenSplitter(added)
        self.vocab_size = max([plain.vocab_size() - 1, *self._texts]) + 1
        self.special_tokens = {text: t.token_id for text, t in added.items() if t.special}
        self._without_specials = hidden | frozenset(self.special_tokens.values())

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        text.encode()  # raises ValueError for a lone surrogate
        bos, eos = self._around if add_special_tokens else ((), ())
        ids = [*bos]
        for at, part, token_id in self._splitter.split(text):
            if token_id is not None:
                ids.append(token_id)
            elif self._prefixed is not None and (self._every_piece or at == 0):
                ids += self._prefixed(part)
            else:
                ids += self._plain.encode(part)
        return np.array([*ids, *eos], np.uint32)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """See `Codec.decode`. The leading space that encoding adds is removed again."""
        left_out = self._without_specials if skip_special_tokens else self._hidden
        kept = [i for i in ids if i not in left_out]
        parts = []
        for is_added, run in groupby(kept, self._texts.__contains__):
            if is_added:
                parts += [self._texts[i] for i in run]
            else:
                known = [i for i in run if i < self._plain.vocab_size()]
                parts.append(self._plain.decode(known))
        text = "".join(parts)
        return text.removeprefix(" ") if self._prefixed is not None else text

    def token_id(self, token: str) -> int | None:
        added = self._added.get(token)
        if added is not None:
            return added.token_id
        token_id: int = self._plain.piece_to_id(token)
        return token_id if self._plain.id_to_piece(token_id) == token else None

    def token(self, token_id: int) -> str | None:
        if token_id in self._texts or token_id >= self._plain.vocab_size():
            return self._texts.get(token_id)
        piece: str = self._plain.id_to_piece(token_id)
        return piece

    def offsets(self, text: str, *, add_special_tokens: bool) -> None:
        """None, because the library's offsets are those of the normalized text."""


def processor(model: bytes, *, described_as: str) -> Any:
    """A `SentencePieceProcessor` of a serialized model."""
    with needs_extra("formats", "sentencepiece", f"{described_as} is a SentencePiece model. It"):
        import sentencepiece
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except Exception as error:  # it raises RuntimeError, and other types for broken models
        raise malformed(f"{described_as} is not a SentencePiece model: {error}") from error


def load_sentencepiece(files: ModelFiles) -> Loaded:
    """Load ``tokenizer.model``.

    BOS is added unless tokenizer_config.json says otherwise, and EOS only if it says so.
    """
    path = files.path("tokenizer.model")
    model = path.read_bytes()
    native = processor(model, described_as=str(path))
    plain = processor(model + _NO_PREFIX, described_as=str(path))
    config = files.object(_CONFIG)
    prefix = config.get("add_prefix_space") is not False
    has_prefix = prefix and native.encode("a") != plain.encode("a")
    bos = (native.bos_id(),) if native.bos_id() >= 0 and config.get("add_bos_token", True) else ()
    eos = (native.eos_id(),) if native.eos_id() >= 0 and config.get("add_eos_token") else ()
    try:
        added, notes = _added(native, files)
    except UnicodeDecodeError as error:
        raise malformed(f"{path} has a piece that is not UTF-8: {error}") from error
    codec = SentencePieceCodec(
        plain=plain,
        prefixed=native.encode if has_prefix else None,
        every_piece=config.get("legacy") is not False,
        added=added,
        bos=bos,
        eos=eos,
    )
    return Loaded("sentencepiece", codec, (_NOTE, *notes))


def _added(native: Any, files: ModelFiles) -> tuple[dict[str, AddedToken], list[str]]:
    """The added tokens: the model's control tokens, replaced by those of the configuration.

    Also returns notes for the user.
    """
    size = native.vocab_size()
    unknown = native.unk_id()  # of which each model has one
    added = {
        native.id_to_piece(i): AddedToken(i)
        for i in range(size)
        if i == unknown or native.is_control(i)
    }
    special = read_special_tokens(files)
    configured = special.with_ids
    taken = {token_id for token_id, _ in configured}
    added = {text: token for text, token in added.items() if token.token_id not in taken}
    replaced: list[tuple[str, str]] = []
    for token_id, token in configured:
        if token_id < size and native.id_to_piece(token_id) != token.content:
            replaced.append((token.content, native.id_to_piece(token_id)))
        known = native.piece_to_id(token.content)
        if token_id >= size and native.id_to_piece(known) == token.content:
            raise ModelError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"{files.name}: the configuration gives {token.content!r} the ID {token_id}, and "
                f"the model {known}.",
            )
        added[token.content] = AddedToken(token_id, token.special, token.lstrip, token.rstrip)
    notes = []
    if replaced:  # InternLM2 replaces pieces that its model keeps free, but does not mark as such
        tokens = ", ".join(f"{text!r} of {piece!r}" for text, piece in replaced[:_SHOWN])
        notes.append(
            f"{len(replaced)} tokens of the configuration have the IDs of other pieces ({tokens}"
            f"{', …' * (len(replaced) > _SHOWN)}): where a text has such a piece, its ID means the "
            "token"
        )
    for text in special.texts:
        if text in added:
            continue
        token_id = native.piece_to_id(text)
        if native.id_to_piece(token_id) != text:
            token_id = max([size - 1, *(token.token_id for token in added.values())]) + 1
            notes.append(
                f"{text!r} has no ID in any file: it got the next free one, as transformers does"
            )
        added[text] = AddedToken(token_id)
    return added, notes
