"""Causes that lie in the text: BOS, special tokens, fill, template, decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.chat.template import ChatTemplate
from mmroute.errors import MmrouteError
from mmroute.geometry import TokenIds
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import ModelFiles, find_model
from mmroute.parity.causes import Cause, Diagnosis, Difference

__all__ = [
    "bos",
    "decode_round_trip",
    "special_token_split",
    "template",
    "templates_of",
    "wrong_fill",
]

_WINDOW: Final = 64
_AGAIN: Final = 3
_SHOWN: Final = 8
_TEMPLATE_FIELDS: Final = ("chat_template.json", "processor_config.json", "tokenizer_config.json")
_BRACKETS: Final = frozenset({"<>", "[]"})
_MOST_PAIRS: Final = 3


def bos(difference: Difference) -> Diagnosis | None:
    """All that differs is how often there is a BOS."""
    bos_id = difference.model.tokenizer.bos_token_id
    if bos_id is None:
        return None
    ours, theirs = difference.ours, difference.theirs
    if not np.array_equal(ours[ours != bos_id], theirs[theirs != bos_id]):
        return None
    counts = int((ours == bos_id).sum()), int((theirs == bos_id).sum())
    if counts[0] == counts[1]:
        return None
    cause = Cause.BOS_EXTRA
    advice = "Does the text hold one already, or is add_special_tokens off in the oracle?"
    if counts[0] < counts[1]:
        cause = Cause.BOS_MISSING
        advice = "Does the oracle add special tokens to this prompt (add_special_tokens)?"
    return difference.found(
        cause,
        f"At position {difference.at} BOS {difference.named(bos_id)} differs: mmroute has "
        f"{counts[0]}, the oracle {counts[1]}. {advice}",
    )


def wrong_fill(difference: Difference) -> Diagnosis | None:
    """Inside images only, each of our IDs is another one of the oracle's, foreign to us."""
    ours, theirs = difference.ours, difference.theirs
    if len(ours) != len(theirs):
        return None
    inside = np.zeros(len(ours), dtype=bool)
    for offset, length in difference.our_ranges:
        inside[offset : offset + length] = True
    differs = ours != theirs
    if (differs & ~inside).any():
        return None
    pairs = dict.fromkeys(zip(ours[differs].tolist(), theirs[differs].tolist(), strict=True))
    known = set(ours[inside].tolist())
    if len({a for a, _ in pairs}) != len(pairs) or all(b in known for _, b in pairs):
        return None
    shown = ", ".join(
        f"{difference.named(a)} in mmroute is {difference.named(b)} in the oracle"
        for a, b in list(pairs)[:_MOST_PAIRS]
    )
    return difference.found(
        Cause.WRONG_FILL,
        f"Images stand at the same positions with another fill: {shown}. Which field of the "
        "configuration does the family spec read the token from?",
    )


def special_token_split(difference: Difference) -> Diagnosis | None:
    """One ID of one side is several of the other, of the same text, and it is a special token."""
    ours, theirs = _windows(difference)
    for one, several, whole_is in ((theirs, ours, "the oracle"), (ours, theirs, "mmroute")):
        for token_id in one.tolist():
            text = _special_text(difference, token_id, several)
            if text is None:
                continue
            split = "mmroute" if whole_is == "the oracle" else "the oracle"
            shown = ", ".join(map(str, several[:_SHOWN].tolist()))
            more = " …" if len(several) > _SHOWN else ""
            return difference.found(
                Cause.SPECIAL_TOKEN_SPLIT,
                f"The special token {text!r} is one ID ({token_id}) in {whole_is} and split into "
                f"pieces in {split} ({shown}{more}). Is it missing from added_tokens of "
                "tokenizer.json and from added_tokens_decoder of tokenizer_config.json?",
            )
    return None


def _windows(difference: Difference) -> tuple[TokenIds, TokenIds]:
    """From the first difference to where both go on alike."""
    ours, theirs = difference.ours[difference.at :], difference.theirs[difference.at :]
    for size in range(1, 2 * _WINDOW):
        for m in range(max(size - _WINDOW, 0), min(size, _WINDOW) + 1):
            a, b = ours[m : m + _AGAIN], theirs[size - m : size - m + _AGAIN]
            if np.array_equal(a, b) and (len(a) or m == len(ours)):
                return ours[:m], theirs[: size - m]
    return ours[:0], theirs[:0]


def _special_text(difference: Difference, token_id: int, several: TokenIds) -> str | None:
    """The text of a special token that the several IDs spell; None if they spell another text."""
    if len(several) <= 1 or token_id in several.tolist():
        return None
    spelled = difference.text(several)
    text = difference.text(np.array([token_id], dtype=np.uint32))
    if not spelled:
        return None
    if not text:
        # Our tokenizer does not know it, so its text is what we have instead.
        return spelled.strip()
    tokenizer = difference.model.tokenizer
    bracketed = text[1:-1] != "" and text[0] + text[-1] in _BRACKETS
    special = text in tokenizer.named_tokens or bracketed
    return text if special and text in spelled else None


def template(difference: Difference) -> Diagnosis | None:
    """Another template of the model directory gives the oracle's answer."""
    chat = difference.model.chat
    if difference.request.messages is None or chat.templates is None:
        return None
    used = chat.templates.get("tool_use" if difference.request.tools else "default")
    seen = {used.source} if used is not None else set()
    for other in templates_of(difference.model):
        if other.source in seen:
            continue
        seen.add(other.source)
        model = replace(difference.model, chat=chat.with_template(other))
        routing = answer(model, difference.request)
        if routing.exact and np.array_equal(routing.token_ids, difference.theirs):
            origin = "none" if used is None else used.origin
            return difference.found(
                Cause.TEMPLATE,
                f"The oracle rendered the chat template of {other.origin}, mmroute that of "
                f"{origin}. Which of them comes first, and do requests with tools differ?",
            )
    return None


def templates_of(model: ResolvedModel) -> Iterator[ChatTemplate]:
    """All chat templates there are: those that were loaded, and the others of the directory."""
    yield from (model.chat.templates or {}).values()
    # A hub name would have to be fetched again; what was loaded is all there is then.
    if not Path(model.name).is_dir():
        return
    files = find_model(model.name)
    for origin, source in _sources(files):
        try:
            yield ChatTemplate.compile(source, origin)
        except MmrouteError:
            continue


def _sources(files: ModelFiles) -> Iterator[tuple[str, str]]:
    for name in files.names():
        if name.endswith(".jinja"):
            yield name, files.text(name)
    for name in _TEMPLATE_FIELDS:
        found = files.object(name).get("chat_template") if files.has(name) else None
        if isinstance(found, str):
            yield f"{name}:chat_template", found


def decode_round_trip(difference: Difference) -> Diagnosis | None:
    """The text is the same, or would be after one more decoding and encoding."""
    ours, theirs = difference.text(difference.ours), difference.text(difference.theirs)
    if not ours or not theirs:
        return None
    a, b = _windows(difference)
    shown = f"{a[:_SHOWN].tolist()} in mmroute, {b[:_SHOWN].tolist()} in the oracle"
    if ours == theirs:
        return difference.found(
            Cause.DECODE_ROUND_TRIP,
            f"From position {difference.at} the same text has other IDs: {shown}. Is it decoded "
            "and encoded again, or encoded in other pieces, by one of them?",
        )
    encode = difference.model.tokenizer.encode
    for text, goal, who in (
        (ours, difference.theirs, "the oracle"),
        (theirs, difference.ours, "mmroute"),
    ):
        try:
            again = encode(text, add_special_tokens=False)
        except ValueError:
            continue
        if np.array_equal(again, goal):
            return difference.found(
                Cause.DECODE_ROUND_TRIP,
                f"From position {difference.at} the IDs of {who} are those of the other's decoded "
                f"text: {shown}. The prompt is decoded and encoded again there.",
            )
    return None
