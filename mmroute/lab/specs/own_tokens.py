"""The tokens of a new model's images, as they stand in an engine's answers."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tokenizers

from mmroute.lab.parity.cases import Case, Outcome
from mmroute.model_directory import ModelFiles
from mmroute.requests.items import Modality

_REPEATED: Final = 3  # so many equal tokens are written as one and their number
_SHOWN: Final = (160, 60)  # characters of the beginning and of the end
_KEPT: Final = ("processors", "grid", "accepts")


@dataclass(frozen=True, slots=True)
class OwnTokens:
    """The tokens of every image: a run of one token, between fixed ones."""

    fill: str  # the text of the token that is repeated
    before: str  # the text of the tokens before this run; empty for none
    after: str  # the text of the tokens behind this run; empty for none

    def put_into(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A spec with the grid of images of another one, and these tokens."""
        image: dict[str, Any] = {"target": "image", "chat_text": self.fill}
        image |= {name: spec["image"][name] for name in _KEPT if name in spec["image"]}
        if self.before or self.after:
            image["layout"] = {"name": "framed", "before": self.before, "after": self.after}
        others = {k: v for k, v in spec.items() if k not in (*Modality, "placement", "chat")}
        return others | {"tokens": {"image": {"text": self.fill}}, "image": image}


def own_tokens(files: ModelFiles, decided: Iterable[tuple[Case, Outcome]]) -> OwnTokens | None:
    """The tokens of a model's images; None if no such three stand in every answer."""
    frames = {
        _frame(outcome)
        for case, outcome in decided
        if case.modalities == {Modality.IMAGE} and outcome.ranges and len(outcome.ranges) == 1
    }
    added: Any = files.object("tokenizer.json").get("added_tokens") or ()
    texts: dict[int, str] = {token["id"]: token["content"] for token in added}
    frame = frames.pop() if len(frames) == 1 else None
    if frame is None or not {i for part in frame for i in part} <= texts.keys():
        return None
    before, (fill,), after = frame
    return OwnTokens(texts[fill], *("".join(map(texts.__getitem__, p)) for p in (before, after)))


def _frame(outcome: Outcome) -> tuple[tuple[int, ...], ...] | None:
    """The tokens before the run, its token, and those behind; None if there is no one run."""
    if outcome.token_ids is None or not outcome.ranges:
        return None
    offset, length = outcome.ranges[0]
    ids = outcome.token_ids[offset : offset + length].tolist()
    ((fill, count),) = Counter(ids).most_common(1)
    start = ids.index(fill)
    if ids[start : start + count] != [fill] * count:
        return None
    return tuple(ids[:start]), (fill,), tuple(ids[start + count :])


def decoder_of(files: ModelFiles) -> tokenizers.Tokenizer | None:
    """The tokenizer of a model as its file has it; None without a ``tokenizer.json``."""
    if not files.has("tokenizer.json"):
        return None
    return tokenizers.Tokenizer.from_file(str(files.path("tokenizer.json")))


def in_words(decoder: tokenizers.Tokenizer | None, ids: Sequence[int]) -> str:
    """The tokens of an item as text, in which ``TOKEN*64`` stands for 64 times the token."""

    def text(some: Sequence[int]) -> str:
        if decoder is None:
            return "".join(f"<{token}>" for token in some)
        return repr(decoder.decode(some, skip_special_tokens=False))[1:-1]

    parts: list[str] = []
    single: list[int] = []
    for token, run in itertools.groupby(ids):
        count = len(list(run))
        if count < _REPEATED:
            single += [token] * count
        else:
            parts += [text(single), f"{text([token])}*{count}"]
            single = []
    written = "".join([*parts, text(single)])
    head, tail = _SHOWN
    return written if len(written) <= head + tail else f"{written[:head]} ... {written[-tail:]}"
