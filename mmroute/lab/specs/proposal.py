"""Proposes a family spec for an unknown model, by trying the spec of each known family on it.

Every known spec is resolved on the new model's files as if it matched them, and compared with the
engine on requests with images of many sizes. Where the tokens of its images are not the model's, it
is tried with those that stand in the engine's answers. The spec that agrees best is a starting
point for the author. Agreement on sizes proves neither the tokenizer nor the template.
"""

from __future__ import annotations

import contextlib
import itertools
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tokenizers

from mmroute.engine import find_engine
from mmroute.engines.vllm.templates import keeps_template
from mmroute.errors import MmrouteError, Reason, quoted
from mmroute.families.matching import spec_files
from mmroute.families.processors import (
    find_processor,
    named_class,
    named_processor,
    with_processors,
)
from mmroute.families.spec import load_spec
from mmroute.lab.parity.cases import Case, Oracle, Outcome, UndecidedError
from mmroute.lab.parity.comparison import difference, our_outcome
from mmroute.lab.parity.media_cases import audio_cases, several_cases, video_cases
from mmroute.lab.specs.toml_text import toml_text
from mmroute.model.resolve import resolve_files
from mmroute.model_directory import FieldRef, ModelFiles
from mmroute.requests.items import Modality
from mmroute.reuse.fast_paths import REFERENCE_ONLY

GOOD: Final = 0.9
"""The share of requests that a good proposal answers as the oracle does."""

_MATCHED_BY: Final = ("config.json:model_type", "config.json:architectures")
_MEDIA_FILES: Final = ("config.json", "params.json", "preprocessor_config.json")
_VISION_WORDS: Final = ("vision", "visual", "image", "img", "video")
_AUDIO_WORDS: Final = ("audio", "speech")
_NOT_PROPOSED: Final = ("embedded", "engine")  # other engines were not asked
_UNDECIDED: Final = "# tokenizer.pipelines is to be decided for this tokenizer_class.\n"
_SIDES: Final = (1, 20, 28, 55, 97, 224, 333, 336, 337, 512, 640, 777, 1024, 1281, 2000)
_SHOWN_LENGTHS: Final = 12
_TEXT: Final = {"type": "text", "text": "What is this?"}
_REPEATED: Final = 3  # so many equal tokens are written as one and their number
_SHOWN: Final = (160, 60)  # characters of the beginning and of the end
_KEPT: Final = ("processors", "grid", "accepts")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A known family, tried on a new model."""

    family: str
    grid: str | None  # the grid that counts its items; None if it takes text only
    text: str  # its spec as TOML, with the name and the match of the new model
    equal: int = 0  # the number of requests answered as the oracle answers them
    # The number of requests that the oracle or the candidate answers. That both refuse a request
    # says nothing of the spec.
    decided: int = 0
    counted: int = 0  # the number of requests whose items have as many tokens as the oracle's
    problem: str = ""  # why the spec does not fit the files; empty if it does
    # The modalities of the spec of which the oracle answered a request.
    compared: tuple[Modality, ...] = ()
    uncompared: tuple[Modality, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the spec is a good starting point.

        Most answers must be equal, and not only those to texts, unless the spec takes text only.
        """
        answered = self.compared or not self.uncompared
        return not self.problem and bool(answered) and 0 < self.equal >= GOOD * self.decided


@dataclass(frozen=True, slots=True)
class Proposal:
    """All known families, tried on a new model."""

    # The candidates, with those first that answer most requests as the oracle does.
    candidates: Sequence[Candidate]
    # The number of tokens of the oracle's first item, by its width and height.
    lengths: Mapping[tuple[int, int], int]
    # The tokens of the shortest and of the longest of them, as text; none if the best candidate
    # is good.
    written: Mapping[tuple[int, int], str]

    @property
    def best(self) -> Candidate:
        """The candidate that agrees best."""
        return self.candidates[0]

    @property
    def missing(self) -> str:
        """The part that no known family has, in words; empty if the best candidate is good."""
        if self.best.good:
            return ""
        if self.best.uncompared and not self.best.compared:
            return f"the engine answered no request with {' or '.join(self.best.uncompared)}"
        counting = max(self.candidates, key=lambda c: (not c.problem, c.counted))
        if not counting.problem and counting.counted >= GOOD * counting.decided:
            return (
                f"the grid {counting.grid}, with the values of {counting.family}, counts "
                "the items as the engine does; the tokens around them, or the text, differ"
            )
        sizes = ", ".join(f"{w}x{h}: {n}" for (w, h), n in self.lengths.items())
        return (
            "no known family that fits counts the items as the engine does. Its grid is "
            "another one, or is read from other fields. The engine's lengths, with the tokens "
            f"that take no features, are {sizes or 'unknown'}"
        )


def _tried(
    family: str, text: str, files: ModelFiles, decided: Sequence[tuple[Case, Outcome]]
) -> Candidate:
    """Resolve a model by a family's spec, and compare the answers with the oracle's."""
    spec = load_spec(text, family)
    grid = next((media.grid.name for media in spec.media.values()), None)
    seen = spec.media.keys() & {Modality.IMAGE, Modality.VIDEO}
    unread = not seen and _named(files, _VISION_WORDS)
    unread = unread or (not spec.media and _named(files, _AUDIO_WORDS))
    if unread:
        taken = ", ".join(spec.media) or "text"
        problem = f"takes {taken} only, and the model more ({unread})"
        return Candidate(family, grid, text, problem=problem)
    try:
        model = resolve_files(
            files, spec, find_engine("vllm"), files.name, fast_paths=REFERENCE_ONLY
        )
    except MmrouteError as error:
        return Candidate(family, grid, text, problem=f"{error.reason}: {error}")
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        return Candidate(family, grid, text, problem=quoted(error))
    outcomes = [(our_outcome(model, case), theirs) for case, theirs in decided]
    pairs = [pair for pair in outcomes if any(one.token_ids is not None for one in pair)]
    equal = sum(not difference(ours, theirs) for ours, theirs in pairs)
    counted = sum(_lengths(ours) == _lengths(theirs) for ours, theirs in pairs)
    answers = [case for case, theirs in decided if theirs.token_ids is not None]
    answered = {modality for case in answers for modality in case.modalities}
    return Candidate(
        family,
        grid,
        text,
        equal,
        len(pairs),
        counted,
        compared=tuple(modality for modality in spec.media if modality in answered),
        uncompared=tuple(modality for modality in spec.media if modality not in answered),
    )


def _for_classes(spec: Mapping[str, Any], files: ModelFiles) -> dict[str, Any]:
    """A spec that says itself what its processor classes say, where a model names other ones."""
    with_theirs = with_processors(spec, files)
    for modality in Modality:
        media = with_theirs.get(modality, {})
        classes = media.get("processors")
        if classes:
            named = named_processor(files, find_processor(classes[0]).part)
            if named not in (None, *classes):
                del media["processors"]
            else:
                with_theirs[modality] = spec[modality]
    return with_theirs


def _lengths(outcome: Outcome) -> list[int] | None:
    """The number of tokens of each item; None for a refusal or unknown ranges."""
    return None if outcome.ranges is None else [length for _, length in outcome.ranges]


def size_cases() -> list[Case]:
    """Requests with one item each, of many sizes, with several items, and with text alone."""
    cases = [Case("text", "text", {"messages": [{"role": "user", "content": [_TEXT]}]})]
    pairs = [(w, h) for i, w in enumerate(_SIDES) for h in (*_SIDES[i % 3 :: 3], w)]
    for width, height in dict.fromkeys(pairs):
        messages = [{"role": "user", "content": [{"type": "image"}, _TEXT]}]
        images = [{"width": width, "height": height}]
        request = {"messages": messages, "images": images}
        cases.append(Case(f"{width}x{height}", "size", request))
    return [*cases, *video_cases(), *audio_cases(), *several_cases(tuple(Modality))]


def propose(files: ModelFiles, oracle: Oracle, cases: Sequence[Case]) -> Proposal:
    """All known families, tried on a model.

    A family without images has a `problem` if the model has a vision part.
    """
    decided = _decided(oracle, cases)
    own = own_tokens(files, decided)
    candidates = []
    for _, file in spec_files():
        known = _for_classes(tomllib.loads(file.read_text(encoding="utf-8")), files)
        family = str(known.get("family", file.name))
        spec, note = _renamed(known, files), ""
        candidate = _tried(family, toml_text(spec), files, decided)
        if candidate.problem.startswith(Reason.TOKENIZER_UNVERIFIED):
            # The family was not checked with this class, but its sizes can be compared.
            spec.setdefault("tokenizer", {})["pipelines"] = {"*": "file"}
            note = _UNDECIDED
            candidate = _tried(family, note + toml_text(spec), files, decided)
        if own is not None and Modality.IMAGE in spec and _only_tokens_differ(candidate):
            other = _with_class(own.put_into(spec), files)
            retried = _tried(family, note + toml_text(other), files, decided)
            if not retried.problem and (candidate.problem or retried.equal > candidate.equal):
                spec, candidate = other, retried
        if candidate.good and candidate.uncompared:
            for modality in candidate.uncompared:
                del spec[modality]
                spec.get("tokens", {}).pop(modality, None)
            candidate = replace(candidate, text=note + toml_text(spec))
        candidates.append(candidate)
    candidates.sort(key=lambda c: (bool(c.problem), -c.equal, c.decided, -c.counted, c.family))
    items = _items(decided)
    by_length = {len(ids): size for size, ids in sorted(items.items(), reverse=True)}
    written = {}
    if by_length and not candidates[0].good:
        decoder = decoder_of(files)
        for size in (by_length[min(by_length)], by_length[max(by_length)]):
            written[size] = in_words(decoder, items[size])
    lengths = {size: len(ids) for size, ids in itertools.islice(items.items(), _SHOWN_LENGTHS)}
    return Proposal(candidates, lengths, written)


def _only_tokens_differ(candidate: Candidate) -> bool:
    """Whether a family may fit but for the tokens of its items."""
    split = candidate.problem.startswith(Reason.SPECIAL_TOKEN_SPLIT)
    return split or (not candidate.problem and candidate.counted >= candidate.equal)


def _items(decided: Sequence[tuple[Case, Outcome]]) -> dict[tuple[int, int], list[int]]:
    """The tokens of an image by its size, from the requests with one image."""
    by_size = {}
    for case, outcome in decided:
        images = case.request.get("images", ())
        alone = len(images) == 1 and "mm_processor_kwargs" not in case.request
        if alone and outcome.ranges and outcome.token_ids is not None:
            offset, length = outcome.ranges[0]
            ids = outcome.token_ids[offset : offset + length].tolist()
            by_size[images[0]["width"], images[0]["height"]] = ids
    return by_size


def _renamed(known: dict[str, Any], files: ModelFiles) -> dict[str, Any]:
    """A known spec with the name and the match of another model, and no checked versions."""
    values = {place: files.lookup(FieldRef.parse(place))[1] for place in _MATCHED_BY}
    name = str(values[_MATCHED_BY[0]] or "new")
    match = {
        place: [str(one) for one in (value if isinstance(value, list) else [value])]
        for place, value in values.items()
        if value is not None
    }
    spec = known | {"family": name, "title": name, "match": match, "checked": {}}
    return _with_class({k: v for k, v in spec.items() if k not in _NOT_PROPOSED}, files)


def _with_class(spec: Mapping[str, Any], files: ModelFiles) -> dict[str, Any]:
    """A spec that says that the engine finds the processor class which the files name."""
    chat = spec.get("chat", {})
    if keeps_template(files) is not None or isinstance(chat, str):
        return {**spec}
    values = {**chat.get("values", {}), "processors": [named_class(files)[0]]}
    return {**spec, "chat": {**chat, "values": values}}


def _named(files: ModelFiles, words: Sequence[str]) -> str:
    """The file and field whose name has one of the words; empty if there is none."""
    for file in _MEDIA_FILES:
        for name in files.object(file):
            if any(word in name for word in words):
                return f"{file}:{name}"
    return ""


def _decided(oracle: Oracle, cases: Sequence[Case]) -> list[tuple[Case, Outcome]]:
    """The requests to which the oracle has an answer, with the answers."""
    decided = []
    for case in cases:
        with contextlib.suppress(UndecidedError):
            decided.append((case, oracle.answer(case)))
    return decided


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
