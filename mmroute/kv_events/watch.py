"""Finds workers that do not announce what was predicted for the requests that they took.

A prompt's last full block is known by a key that covers all before it, so one event of it proves
the whole prediction. Of a request that no such event follows, the worker's other new prompt that is
most like it says what differs. Tokens are kept as 16 bits that do not tell them.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from mmroute.engines.events import BlockStored, Contents, StoredHashes
from mmroute.errors import InexactError, Reason
from mmroute.kv_events.differences import (
    OTHER_HASH,
    Announced,
    Sent,
    Watched,
    difference,
    fingerprints,
    likeness,
)
from mmroute.kv_events.holders import low_bits

if TYPE_CHECKING:
    from mmroute.answering.routing import Routing
    from mmroute.kv_events.block_index import BlockIndex

_LOG: Final = logging.getLogger(__name__)
_DIFFERENT: Final = 3  # requests among the last `_RECENT` after which a worker differs
_SHARE: Final = 5  # and one in so many of those with items, or of those without
_RECENT: Final = 50
_ENOUGH: Final = 20  # equal requests after which a worker is proved
_LIKE: Final = 0.5  # the part of a prompt's text that another one must have
_GRACE: Final = 8  # prompts that may be announced before one that was sent earlier
_SECONDS: Final = 60.0  # after which nothing is expected any more
_MOST_WAITING: Final = 256  # requests of one worker
_MOST_WATCHED: Final = 4096  # workers, models and versions


class Outcome(StrEnum):
    """What became of a prediction."""

    EQUAL = "equal"
    """The worker announced the prompt as predicted."""
    DIFFERENT = "different"
    """It announced another prompt in its place."""
    HELD = "held"
    """It had announced all of the prompt before, which proves nothing."""
    UNKNOWN = "unknown"
    """It announced nothing of the kind: the request failed, or went to another worker."""
    EVICTED = "evicted"
    """By `cached_tokens`, it had less of the prompt than its events had told."""
    UNHEARD = "unheard"
    """By `cached_tokens`, it had more of the prompt than its events had told."""


class State(StrEnum):
    """What is known of the predictions for a worker."""

    PROVED = "proved"
    """Many requests were announced as predicted, and none otherwise."""
    UNPROVED = "unproved"
    """There are not enough requests yet."""
    DIFFERS = "differs"
    """Some were announced otherwise, and not as many as predicted since then."""


@dataclass(slots=True)
class WatchedState:
    """The predictions for one model on one worker.

    Attributes:
        state: what is known of them.
        difference: the first difference; empty if none was found.
        counts: the number of requests of each outcome.
    """

    state: State = State.UNPROVED
    difference: str = ""
    counts: Counter[Outcome] = field(default_factory=Counter)
    # The last requests that were decided: whether it was equal, and whether it had items.
    _recent: deque[tuple[bool, bool]] = field(
        default_factory=lambda: deque(maxlen=_RECENT), repr=False
    )
    # Equal requests since the last one that was not.
    _run: int = field(default=0, repr=False)
    # Whether the difference was one of a prompt with items.
    _of_items: bool = field(default=False, repr=False)

    def enter(self, outcome: Outcome, *, has_items: bool, difference: str = "") -> bool:
        """Count an outcome. Return whether the state is another one after it."""
        self.counts[outcome] += 1
        before = self.state
        if outcome is Outcome.DIFFERENT:
            self._recent.append((False, has_items))
            self._run = 0
            self.difference = self.difference or difference
            self._of_items = has_items
            alike = [was_equal for was_equal, had_items in self._recent if had_items is has_items]
            count = alike.count(False)
            if count >= _DIFFERENT and count * _SHARE >= len(alike):
                self.state = State.DIFFERS
            elif self.state is State.PROVED:
                self.state = State.UNPROVED
        elif outcome is Outcome.EQUAL:
            self._recent.append((True, has_items))
            self._run += has_items or not self._of_items
            if self._run >= _ENOUGH:
                self.state, self.difference, self._of_items = State.PROVED, "", False
        return self.state is not before

    def restart(self) -> bool:
        """Begin to prove another process. Return whether the state is another one after it."""
        self._recent.clear()
        self._run = 0
        was_proved = self.state is State.PROVED
        if was_proved:
            self.state = State.UNPROVED
        return was_proved


class Prediction(NamedTuple):
    """A request that was sent to a worker."""

    of: Watched
    number: int


@dataclass(slots=True)
class _Worker:
    waiting: OrderedDict[int, Sent] = field(default_factory=OrderedDict)
    by_last: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    # Prompts by their last key; None for one that was predicted.
    prompts: OrderedDict[int, Announced | None] = field(default_factory=OrderedDict)
    announced: int = 0  # prompts so far


class Watch:
    """Compares what workers announce with what was predicted for the requests sent to them.

    Tell it of every request that a worker takes, right before it is sent. Its memory is bounded,
    and it keeps no token. Every method may be called from any thread.

    Args:
        index: the index by content that enters the workers' events. The watch hears them from it.
        acts: whether `check` raises for a worker that differs. Otherwise it is only told.

    >>> from mmroute.kv_events import BlockIndex
    >>> Watch(BlockIndex(by_content=True)).states()
    {}
    """

    def __init__(self, index: BlockIndex, *, acts: bool = False) -> None:
        self.acts = acts
        self._index = index
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._workers: defaultdict[str, _Worker] = defaultdict(_Worker)
        self._states: OrderedDict[Watched, WatchedState] = OrderedDict()
        index.tell(self)

    def sent(
        self,
        worker: str,
        routing: Routing,
        block_size: int,
        *,
        model: str = "",
        version: str = "",
        keys: Sequence[int] | None = None,
        hashes: Sequence[int] | None = None,
    ) -> Prediction | None:
        """Expect what a worker will announce of a request.

        Args:
            worker: the worker's name in the index.
            routing: the exact answer.
            block_size: the worker's block or page size, in tokens.
            model: the model's name. It and `version` tell states apart.
            version: the version of the worker's engine.
            keys: the `content_keys` of the routing, if they are known.
            hashes: the `event_ints` of its hashes, if the router looks prompts up by them. Then a
                worker differs, too, if it announces the prompt under another hash.

        Returns:
            What `answered` takes; None if the prompt has no full block.

        Raises:
            InexactError: as `Routing.content_keys`.
        """
        found = routing.content_keys(block_size) if keys is None else keys
        last = routing.hashing.settings.num_published(len(found)) - 1
        if last < 0:
            return None
        of, is_held = Watched(worker, model, version), self._index.holds(worker, found[last])
        with self._lock:
            known = self._workers[worker]
            prediction = Prediction(of, next(self._numbers))
            if is_held or found[last] in known.prompts:  # perhaps announced just now
                self._enter(of, Outcome.HELD)
                return prediction
            due = known.announced + len(known.waiting) + _GRACE
            ids, hashed = routing.token_ids, None if hashes is None else low_bits(hashes[last])
            ranges = [(placed.offset, placed.length) for placed in routing.placeholders]
            prints = fingerprints(ids[: (last + 1) * block_size])
            keys = found[: last + 1]
            one = Sent(of, keys, block_size, prints, hashed, ranges, due, time.monotonic())
            known.waiting[prediction.number] = one
            known.by_last[found[last]].append(prediction.number)
            self._expire(known)
            return prediction

    def answered(self, prediction: Prediction, predicted: int, cached_tokens: int | None) -> None:
        """Take what the worker's answer tells of a request.

        Args:
            prediction: what `sent` returned.
            predicted: the number of tokens that the index credited to the worker.
            cached_tokens: the engine's own number of them; None if the request failed.
        """
        of, number = prediction
        with self._lock:
            known = self._workers.get(of.worker)
            if cached_tokens is None:
                if known is not None and number in known.waiting:
                    self._forget(known, number)
                    self._enter(of, Outcome.UNKNOWN)
            elif cached_tokens < predicted:
                self._enter(of, Outcome.EVICTED)
            elif cached_tokens > predicted:
                self._enter(of, Outcome.UNHEARD)

    def check(self, worker: str, model: str = "", version: str = "") -> None:
        """Raise if a worker differs and the watch acts.

        Raises:
            InexactError: `engine_differs`, with the first difference.
        """
        state = self._states.get(Watched(worker, model, version)) if self.acts else None
        if state is not None and state.state is State.DIFFERS:
            raise InexactError(
                Reason.ENGINE_DIFFERS,
                f"{worker} announced other prompts than predicted: {state.difference}. Compare its "
                "options with the settings (mmroute validate --events)",
            )

    def states(self) -> dict[Watched, WatchedState]:
        """What is known of each worker, model and version. The values go on to change."""
        with self._lock:
            return dict(self._states)

    def stored(
        self,
        worker: str,
        event: BlockStored | StoredHashes,
        contents: Contents,
        keys: tuple[int, ...],
        parent: int | None,
    ) -> None:
        """Take the blocks of an event, by their keys and that of the block before."""
        with self._lock:
            known = self._workers.get(worker)
            if known is None:
                return
            predicted = [
                (known.waiting.pop(number), event.block_hashes[at])
                for at, key in enumerate(keys)
                for number in known.by_last.pop(key, ())
            ]
            for one, block_hash in predicted:
                is_equal = one.hash in (None, low_bits(block_hash))
                outcome = Outcome.EQUAL if is_equal else Outcome.DIFFERENT
                self._enter(one.of, outcome, one, "" if is_equal else OTHER_HASH)
            if not predicted and keys[-1] in known.prompts:  # of another group
                return
            # What is not predicted may be a prompt, its next part, or tokens that were generated.
            prompt: Announced | None = None
            if parent is not None and parent in known.prompts:
                if (prompt := known.prompts.pop(parent)) and not predicted:
                    prompt = prompt.and_then(keys, fingerprints(contents.token_ids))
            elif not predicted and known.waiting:
                prints = fingerprints(contents.token_ids)
                prompt = Announced(parent, keys, event.block_size, prints, time.monotonic())
                known.announced += 1
            known.announced += len(predicted)
            known.prompts[keys[-1]] = None if predicted else prompt
            if len(known.prompts) > _MOST_WAITING:
                known.prompts.popitem(last=False)
            self._expire(known)

    def interrupted(self, worker: str, *, restarted: bool) -> None:
        """Expect nothing more of what was sent, as events were lost. The index calls it."""
        with self._lock:
            known = self._workers.pop(worker, None) or _Worker()
            for one in known.waiting.values():
                self._enter(one.of, Outcome.UNKNOWN)
            for of, state in self._states.items() if restarted else ():
                if of.worker == worker and state.restart():
                    _log(of, state)

    def _expire(self, known: _Worker) -> None:
        """Take the requests that are not expected any more for those of other prompts."""
        late = time.monotonic() - _SECONDS
        while known.waiting:
            number, one = next(iter(known.waiting.items()))
            if one.due > known.announced and one.at > late and len(known.waiting) < _MOST_WAITING:
                return
            self._forget(known, number)
            others = [(likeness(one, each), last) for last, each in known.prompts.items() if each]
            like, last = max(others, default=(0.0, 0))
            other = known.prompts.get(last)
            if like < _LIKE or other is None:
                self._enter(one.of, Outcome.UNKNOWN)
            else:
                known.prompts[last] = None
                self._enter(one.of, Outcome.DIFFERENT, one, difference(one, other))

    @staticmethod
    def _forget(known: _Worker, number: int) -> None:
        one = known.waiting.pop(number)
        known.by_last[one.keys[-1]].remove(number)
        if not known.by_last[one.keys[-1]]:
            del known.by_last[one.keys[-1]]

    def _enter(
        self, of: Watched, outcome: Outcome, one: Sent | None = None, difference: str = ""
    ) -> None:
        state = self._states.setdefault(of, WatchedState())
        if len(self._states) > _MOST_WATCHED:
            self._states.popitem(last=False)
        if state.enter(outcome, has_items=bool(one and one.items), difference=difference):
            _log(of, state)


def _log(of: Watched, state: WatchedState) -> None:
    fields = {**of._asdict(), "state": state.state.value, "text": state.difference}
    level = logging.WARNING if state.state is State.DIFFERS else logging.INFO
    told = ". ".join(filter(None, (state.state, state.difference)))
    what = "predictions for %s, model %s: %s"
    _LOG.log(level, what, *of[:2], told, extra={"fields": fields})
