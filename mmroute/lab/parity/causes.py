"""The causes of a difference by name, and the settings that remove it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from mmroute.engines.vllm.settings import VllmSettings
from mmroute.lab.parity.differences import NOT_DECODED
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer

CAN_BE_TAKEN_OUT: Final = {
    "PYTHONHASHSEED": "hash_seed",
    "--chat-template": "chat_template",
    "--default-chat-template-kwargs": "chat_template_kwargs",
}
"""Options and variables that may be given here and not be the engine's, with their settings."""
_DEFAULTS: Final = VllmSettings()
_TAKEN_OUT: Final = re.compile(r"take (\S+) out of the line")


class Word(StrEnum):
    """A word of a report, with its meaning there. The values are stable."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        word = str.__new__(cls, value)
        word._value_ = value
        word.meaning = meaning
        return word


class Cause(Word):
    """The cause of a difference."""

    ORACLE_REFUSES = "oracle_refuses", "The oracle refuses the request, and mmroute answers it."
    SPECIAL_TOKENS = (
        "special_tokens",
        "The oracle encodes the prompt with another value of `add_special_tokens`.",
    )
    FRONTEND = (
        "frontend",
        "The oracle is the other frontend of the engine, which renders and tokenizes otherwise.",
    )
    TEMPLATE = (
        "template",
        "The oracle renders another chat template, or the same one with other settings.",
    )
    PROCESSOR_ARGUMENT = (
        "processor_argument",
        "Images have the counts that another processor argument gives.",
    )
    WRONG_COUNT = (
        "wrong_count",
        "The same text, and images have counts that no processor argument that was tried gives.",
    )
    RANGES_ONLY = "ranges_only", "The same IDs, and other ranges for the images."
    FEATURES_ONLY = (
        "features_only",
        "The same IDs and ranges, and other positions of them receive features.",
    )
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
    SEED = "seed", "The hashes are those of another PYTHONHASHSEED."
    LAYOUT = "layout", "The hashes have the layout of another version of the engine."
    LOOKAHEAD = "lookahead", "The hashes cover other numbers of tokens behind their block."
    STORED = (
        "stored",
        "The blocks that are stored have other parents, keys or hashes, or are fewer.",
    )
    REUSE = "reuse", "The engine takes another number of tokens from its cache."
    HASHES_ONLY = "hashes_only", "The same IDs, and hashes that no setting that was tried gives."
    CONTEXT = "context", "The engine's context has another number of tokens."
    LIMIT = "limit", "The engine takes other numbers of items in one prompt, or other sizes."
    LORA = "lora", "The engine answered with another adapter, or at another path."
    CACHE_SALT = "cache_salt", "The engine has another cache salt."
    OTHER = "other", "No setting that was tried makes the two answers equal."


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The place at which two answers begin to differ, and the cause.

    Attributes:
        cause: the cause.
        first_difference: the index of the first token ID that differs; 0 for a refusal, and the
            length of the answer if only ranges or identities differ.
        explanation: one or two sentences for the person who has to correct it.
        alternatives: the settings that give the oracle's answer, such as ``--model NAME``.
    """

    cause: Cause
    first_difference: int
    explanation: str
    alternatives: tuple[str, ...] = ()


class Remedy(NamedTuple):
    """The cause of a difference, and the setting that removes it.

    Attributes:
        cause: the cause.
        explanation: one or two sentences for the person who has to correct it.
        setting: the text to add to ``--engine-args``, or the result of `taken_out`; empty if it is
            not an option or not known.
    """

    cause: Cause
    explanation: str
    setting: str = ""

    @staticmethod
    def diagnosis(remedies: Sequence[Remedy], at: int) -> Diagnosis:
        """The diagnosis from several remedies; the first gives the cause."""
        return Diagnosis(
            remedies[0].cause,
            at,
            " ".join(remedy.explanation for remedy in remedies),
            tuple(remedy.setting for remedy in remedies if remedy.setting),
        )


def taken_out(name: str) -> str:
    """The advice to leave out an option or variable that the engine does not have."""
    return f"take {name} out of the line"


def name_taken_out(setting: str) -> str:
    """The option or variable that such advice names; empty for another setting."""
    found = _TAKEN_OUT.fullmatch(setting)
    return "" if found is None else found[1]


def without(settings: VllmSettings, *names: str) -> VllmSettings:
    """The settings without options or variables that `CAN_BE_TAKEN_OUT` lists."""
    fields = [CAN_BE_TAKEN_OUT[name] for name in names]
    return replace(settings, **{each: getattr(_DEFAULTS, each) for each in fields})


def merged(option: str, known: Mapping[str, Any], changed: Mapping[str, Any]) -> str:
    """An option whose value is an object, with the keys that the engine's settings already have."""
    return f"--{option} {shlex.quote(json.dumps({**known, **changed}))}"


def text_of(tokenizer: Tokenizer, ids: TokenIds) -> str | None:
    """The text of token IDs; None if the tokenizer has no text for one of them."""
    try:
        return tokenizer.decode(ids.tolist())
    except NOT_DECODED:
        return None
