"""The causes of a difference by name, and the two answers that differ."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from mmroute.geometry import TokenIds
from mmroute.model.resolved import ResolvedModel
from mmroute.pages.alignment import NOT_DECODED
from mmroute.parity.cases import Range
from mmroute.requests.request import Request
from mmroute.tokenizers import Tokenizer

__all__ = ["Cause", "Diagnosis", "Difference", "Word", "text_of"]


class Word(StrEnum):
    """A word of a report, and what it means there. The values are stable."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        word = str.__new__(cls, value)
        word._value_ = value
        word.meaning = meaning
        return word


class Cause(Word):
    """The cause of a difference."""

    ORACLE_REFUSES = "oracle_refuses", "The oracle refuses the request, and mmroute answers it."
    BOS_MISSING = (
        "bos_missing",
        "The oracle has a BOS where mmroute has none; nothing else differs.",
    )
    BOS_EXTRA = (
        "bos_extra",
        "mmroute has a BOS, or one more, where the oracle has none; nothing else differs.",
    )
    WRONG_FILL = "wrong_fill", "Images take the same positions, filled with another ID."
    WRONG_COUNT = "wrong_count", "An image has another number (or arrangement) of tokens."
    PLACEMENT_ORDER = (
        "placement_order",
        "The same images and the same text, put together in another order.",
    )
    SPECIAL_TOKEN_SPLIT = (
        "special_token_split",
        "A special token is one ID for one of the two, and ordinary pieces for the other.",
    )
    TOKENIZER_CLASS = (
        "tokenizer_class",
        "The oracle's tokenizer is built by another class: other pipeline, options or tokens.",
    )
    DECODE_ROUND_TRIP = (
        "decode_round_trip",
        "The same text, in other IDs: one of the two has decoded and encoded it again.",
    )
    TEMPLATE = "template", "The oracle rendered another of the model directory's chat templates."
    ORIENTATION = (
        "orientation",
        "The oracle counts an image with its sides swapped: EXIF, or height before width.",
    )
    RANGES_ONLY = "ranges_only", "The same IDs; the images are said to stand elsewhere in them."
    IDENTITIES_ONLY = (
        "identities_only",
        "The same IDs and ranges; items have other identities, and so their blocks other hashes.",
    )
    MODEL_STRING = (
        "model_string",
        "Items have the identities that another model string of the engine gives them.",
    )
    BLOCK_SIZE = "block_size", "The engine's blocks have another size."
    ALGORITHM = "algorithm", "The hashes are those of another algorithm."
    SEED = "seed", "The hashes begin with another PYTHONHASHSEED."
    LAYOUT = "layout", "The hashes are laid out as in another version of the engine."
    HASHES_ONLY = "hashes_only", "The same IDs, and hashes that nothing tried gives."
    LORA = "lora", "The engine answered with another adapter, or at another path."
    CACHE_SALT = "cache_salt", "The engine has another cache salt."
    PROCESSOR_ARGUMENT = (
        "processor_argument",
        "Images have the counts that another processor argument gives.",
    )
    OTHER = "other", "None of these, or several at once."


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where two answers begin to differ, and why.

    Attributes:
        cause: by name.
        first_difference: index of the first token ID that differs; 0 for a refusal, and the
            length of the answer if only ranges do.
        explanation: one or two sentences for the person who has to correct it.
        alternatives: for a wrong count every change of the geometry that was found to give all
            of the oracle's answer, such as ``rounding='down'``; else empty.
    """

    cause: Cause
    first_difference: int
    explanation: str
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Two answers with token IDs that differ.

    Attributes:
        model: who gave ours.
        request: the one both answered.
        ours: our token IDs.
        theirs: the oracle's.
        our_ranges: where we say the images stand.
        their_ranges: likewise; None if the oracle does not say.
        at: index of the first ID that differs.
    """

    model: ResolvedModel
    request: Request
    ours: TokenIds
    theirs: TokenIds
    our_ranges: tuple[Range, ...]
    their_ranges: tuple[Range, ...] | None
    at: int

    def text(self, ids: TokenIds) -> str | None:
        """The text of token IDs; None if our tokenizer has none for them."""
        return text_of(self.model.tokenizer, ids)

    def named(self, token_id: int) -> str:
        """A token ID with its text, for an explanation."""
        text = self.text(np.array([token_id], dtype=np.uint32))
        return f"{token_id} ({text!r})" if text else f"{token_id} (not in our tokenizer)"

    def found(
        self, cause: Cause, explanation: str, alternatives: tuple[str, ...] = ()
    ) -> Diagnosis:
        """The diagnosis of this difference."""
        return Diagnosis(cause, self.at, explanation, alternatives)


def text_of(tokenizer: Tokenizer, ids: TokenIds) -> str | None:
    """The text of token IDs; None if the tokenizer has no text for one of them."""
    try:
        return tokenizer.decode(ids.tolist())
    except NOT_DECODED:
        return None
