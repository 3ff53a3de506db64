"""What vLLM and mmroute answer about one directory, and how they differ."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from mmroute.errors import MmrouteError, ModelError, Reason
from mmroute.lab.parity.cases import Case, Outcome
from mmroute.lab.parity.comparison import difference, our_outcome
from mmroute.lab.parity.conversations import IMAGE as PICTURE
from mmroute.lab.parity.conversations import as_prompt, conversations, part, takes_chats, user
from mmroute.lab.parity.media_cases import gif_url, wav_url
from mmroute.lab.parity.oracles.vllm import VllmOracle
from mmroute.lab.specs.field_changes import IMAGE, NESTED, PROCESSOR, VIDEO
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import ModelFiles

VERDICTS: Final = (
    "crashed", "silent", "loaded", "accepted", "refused", "right", "neither", "undecided",
)  # fmt: skip
_REFUSALS: Final = frozenset({"", *map(str, Reason)})
# A package that is not installed here, or the limit of memory.
_NO_REFUSAL: Final = re.compile("(Import|ModuleNotFound|Memory)Error|allocate memory")
_SIZES: Final = ((1283, 721), (90, 333), (56, 56))
_VIDEO: Final = (200, 120, 40, 20)  # width, height, frames, hundredths of a second per frame
_AUDIO: Final = (200_001, 16_000)  # samples, and their rate
_LONGEST: Final = 160


class _Side:
    """One of the two that answer. If it does not load the model, that is its every answer."""

    def __init__(self, directory: Path, load: Callable[[], Callable[[Case], Outcome]]) -> None:
        self.directory, self.refusal = directory, ""
        try:
            self._ask = load()
        except Exception as error:  # noqa: BLE001 - both raise many types
            self.refusal = self._words(error)

    def answer(self, case: Case) -> Outcome:
        if self.refusal:
            return Outcome(refusal=self.refusal)
        try:
            return self._ask(case)
        except Exception as error:  # noqa: BLE001 - both raise many types
            return Outcome(refusal=self._words(error))

    def _words(self, error: BaseException) -> str:
        while error.__cause__ is not None and not isinstance(error, ModelError):
            error = error.__cause__
        kind = error.reason if isinstance(error, MmrouteError) else type(error).__name__
        return f"{kind}: {error}".replace(str(self.directory), "MODEL")


def judged(
    directory: Path,
    requests: Sequence[Case],
    resolve: Callable[[Path], ResolvedModel],
    *,
    trust_remote_code: bool,
) -> dict[str, Any]:
    """The verdict; and of each request its own, and the number of tokens or refusal of both.

    ``prompts`` is a digest of all that vLLM answers.
    """
    vllm = _Side(directory, lambda: oracle_of(directory, trust_remote_code).entered)
    ours = _Side(directory, lambda: partial(our_outcome, resolve(directory)))
    answers, entered = {}, {}
    for case in requests if not vllm.refusal else ():
        pair = vllm.answer(case), ours.answer(case)
        entered[case.id] = pair[0]
        answers[case.id] = (verdict_of(*pair), *map(_told, pair))
    found = {verdict for verdict, *_ in answers.values()}
    if vllm.refusal:
        start = verdict_of(*(Outcome(refusal=side.refusal) for side in (vllm, ours)))
        found = {start if start != "neither" or ours.refusal else "loaded"}
    starts = {"vllm": vllm.refusal[:_LONGEST], "mmroute": ours.refusal[:_LONGEST]}
    verdict = next(one for one in VERDICTS if one in found)
    prompts = {} if vllm.refusal else {"prompts": digest_of(entered)}
    return (
        {"verdict": verdict, "requests": answers}
        | prompts
        | {side: told for side, told in starts.items() if told}
    )


def digest_of(entered: Mapping[str, Outcome]) -> str:
    """A digest of the token IDs and ranges of some requests, by their names."""
    digest = hashlib.sha256()
    for name, outcome in entered.items():
        digest.update(repr((name, outcome.ranges)).encode())
        digest.update(b"" if outcome.token_ids is None else outcome.token_ids.tobytes())
    return digest.hexdigest()[:16]


def verdict_of(theirs: Outcome, ours: Outcome) -> str:
    """The one of `VERDICTS` that fits the answers to a request."""
    if (ours.refusal or "").partition(":")[0] not in _REFUSALS:
        return "crashed"
    if theirs.token_ids is None:
        if _NO_REFUSAL.search(theirs.refusal or ""):
            return "undecided"
        return "neither" if ours.token_ids is None else "accepted"
    if ours.token_ids is None:
        return "refused"
    return "silent" if difference(ours, theirs) else "right"


def _told(outcome: Outcome) -> int | str:
    if outcome.token_ids is None:
        return (outcome.refusal or "")[:_LONGEST]
    return len(outcome.token_ids)


def oracle_of(directory: Path, trust_remote_code: bool) -> VllmOracle:
    """The installed vLLM for a directory."""
    return VllmOracle(ModelFiles(str(directory), directory), trust_remote_code=trust_remote_code)


def requests_of(model: ResolvedModel) -> Iterator[Case]:
    """A chat of text, chats with one item and with two, and a prompt."""
    said, chats = part("What is this?"), takes_chats(model)
    items: dict[str, tuple[dict[str, Any], ...]] = {"text": ()}
    if "image" in model.media:
        items |= {f"image-{w}x{h}": ({"width": w, "height": h},) for w, h in _SIZES}
        items["images"] = tuple({"width": w, "height": h} for w, h in _SIZES[1:])
    for name, sizes in items.items():
        chat = {"messages": [user(*[PICTURE] * len(sizes), said)], "images": [*sizes]}
        yield Case(name, "", chat)
        if not chats:
            yield Case(f"{name}-prompt", "", as_prompt(model, chat))
    urls = {"video": gif_url(*_VIDEO), "audio": wav_url(*_AUDIO)}
    for kind in urls.keys() & {str(modality) for modality in model.media}:
        one = {"type": f"{kind}_url", f"{kind}_url": {"url": urls[kind]}}
        yield Case(kind, "", {"messages": [user(one, said)]})
    yield from (case for case in conversations(model) if case.id == "bos-chat-added")


def known_fields(oracle: VllmOracle, files: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the model's classes have, by file, with the values in force."""

    def fields(one: Any) -> dict[str, Any]:
        with contextlib.suppress(Exception):  # a class of a model's own may have no such function
            declared = getattr(getattr(one, "valid_kwargs", None), "__annotations__", {})
            values: dict[str, Any] = json.loads(json.dumps(one.to_dict(), default=_plain))
            return dict.fromkeys(declared) | values
        return {}

    from transformers import PretrainedConfig

    renderer = oracle.renderer
    every = PretrainedConfig().to_dict().keys()
    known = {"config.json": _without(fields(renderer.model_config.hf_config), every)}
    if renderer.mm_processor is None:
        return known
    processor = renderer.mm_processor.info.get_hf_processor()
    plain = bool | int | float | str | None
    own = getattr(processor, "__dict__", {})
    known[PROCESSOR] = {name: value for name, value in own.items() if isinstance(value, plain)}
    for nested, file in NESTED.items():
        of_part = fields(getattr(processor, nested, None))
        if nested in files.get(PROCESSOR, {}):
            known[PROCESSOR][nested] = of_part
        elif file == VIDEO or IMAGE in files:
            known[file] = known.get(file, {}) | of_part
    return known


def fields_of_spec(
    model: ResolvedModel, files: ModelFiles, known: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The fields that the model's spec reads or limits, and that are not known, by file.

    A class may keep a field by another name, as MiniCPM-V's keeps ``im_start``.
    """
    found: dict[str, dict[str, Any]] = {}
    for media in model.family.media.values():
        values = (*media.grid.values.values(), *media.layout.values.values())
        places = [(ref, one.default) for one in values for ref in one.sources]
        places += [(ref, next(iter(one.values), None)) for ref, one in media.only.items()]
        for place, value in ((files.effective(ref), value) for ref, value in places):
            name, *inner = place.path
            if not inner and name not in known.get(place.file, {}):
                found.setdefault(place.file, {})[name] = value
    return found


def _plain(value: Any) -> Any:
    """A value of numpy as JSON has it, and others as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _without(fields: Mapping[str, Any], names: Any) -> dict[str, Any]:
    return {
        name: _without(value, names) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if name not in names
    }
