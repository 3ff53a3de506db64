"""A cache of rendered chats: only the new messages of a conversation are processed."""

from __future__ import annotations

import marshal
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeGuard

import numpy as np

from mmroute.chat.conversation import Continued, MediaPart, Part
from mmroute.chat.resumable import Place, ResumableTemplate, State, proved
from mmroute.chat.template import ChatTemplate
from mmroute.requests.items import Modality
from mmroute.reuse.prefix_cache import RecentCache
from mmroute.token_ids import TokenIds

try:
    from mmroute.chat.native import _messages
except ImportError:
    _messages = None  # type: ignore[assignment]  # it is optional

_PROBES: Final = (
    None, False, 0, 0.0, -0.0, "0", 1 << 80, "\u00e9", ["0"], ["0", None], [["0"]],
    {"a": 0, "b": "0"}, {"b": "0", "a": 0}, {"a": 0.0, "b": "0"}, {"a": [{"b": "0"}]},
)  # fmt: skip


def num_same_messages(known: list[Any], messages: list[Any]) -> int:
    """The number of leading messages that two chats share."""
    return _fastest()(known, messages)


@cache
def _fastest() -> Callable[[list[Any], list[Any]], int]:
    pairs = [([known], [other]) for known in _PROBES for other in deepcopy(_PROBES)]
    if _messages is not None and all(
        _messages.num_same_messages(*pair) == _by_python(*pair) for pair in pairs
    ):
        return _messages.num_same_messages
    return _by_python


def _by_python(known: list[Any], messages: list[Any]) -> int:
    count = min(len(known), len(messages))
    if _are_same(known[:count], messages[:count]):
        return count
    pairs = enumerate(zip(known, messages, strict=False))
    return next((at for at, pair in pairs if not _are_same(*pair)), count)


def _are_same(known: Any, value: Any) -> bool:
    try:
        return dumped(known) == dumped(value)
    except ValueError:
        return False


def dumped(value: Any) -> bytes:
    """Bytes that tell values apart by their types and the order of their keys."""
    # Version 0 writes equal values alike, whether they are one object or several.
    return marshal.dumps(value, 0)


_MIN_MESSAGES: Final = 24  # fewer are rendered in less time than a lookup takes
_MOST: Final = 0.5  # of the messages
_MOST_NEW: Final = 16  # messages behind those of a known chat
_LONGEST_OVERLAP: Final = 1024  # characters
_EDGE: Final = 32  # characters of a text that tell it from most others, with its length
_BYTES_PER_MESSAGE: Final = 1024  # of Python objects, beside the texts
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


class _Cut(NamedTuple):
    """A point at which the prompt of a chat can be continued: the beginning of a message."""

    state: State  # the template's state at this point
    ids: int  # the number of leading token IDs that any continuation has
    characters: int  # the number of characters of the text that these IDs stand for
    overlap: str  # the text between these characters and this point


_START: Final = _Cut((), 0, 0, "")


@dataclass(slots=True, eq=False)
class _Chat:
    """A chat that was rendered and encoded; or one without messages, for a chat requested once.

    It grows while other threads read it, and nothing in it changes that stands for a message.
    """

    template: ResumableTemplate  # the template that rendered it
    variables: bytes  # all values beside the messages on which its text depends, as bytes
    keys: list[int]  # the keys under which the cache may find it
    messages: list[Any] = field(default_factory=list)  # a copy of the messages
    # The sizes of all messages up to each of them, in bytes.
    sizes: list[int] = field(default_factory=list)
    # The messages as the template got them.
    conversation: list[dict[str, Any]] = field(default_factory=list)
    # The parts that stand for an item, each after the number of its message.
    media: list[tuple[int, MediaPart]] = field(default_factory=list)
    # One for each message, and for the end; None where the prompt cannot be continued.
    cuts: list[_Cut | None] = field(default_factory=list)
    ids: TokenIds = field(default_factory=lambda: np.empty(0, np.uint32))  # the prompt's token IDs

    def branch(self, count: int) -> _Chat:
        """A copy with so many of the messages, which no key leads to."""
        return _Chat(
            self.template,
            self.variables,
            [],
            self.messages[:count],
            self.sizes[:count],
            self.conversation[:count],
            [each for each in self.media if each[0] < count],
            self.cuts[:count],
            self.ids,
        )

    def extend(self, first: int, rest: _Chat) -> None:
        """Add messages."""
        self.ids = rest.ids
        self.cuts[first:] = rest.cuts
        self.keys += rest.keys
        self.media += rest.media
        self.conversation += rest.conversation
        self.sizes += rest.sizes
        self.messages += rest.messages


class ChatCache(RecentCache[_Chat, int]):
    """A cache of the chats of one model. Safe to share between threads.

    A chat is kept at its second request, which may have more messages. Keeping a chat takes nearly
    as long as answering it, and many chats are requested only once. The counters are in bytes of
    messages.

    A chat is found by keys, each for a number of its leading messages. A key is made from the edges
    of a few texts, so it leads to a candidate. The messages are compared, so a wrong candidate
    costs time and changes no answer.
    """

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._templates: dict[str, ResumableTemplate | None] = {}
        self._by_key: dict[int, _Chat] = {}

    @staticmethod
    def is_long_enough(messages: object) -> TypeGuard[list[Any]]:
        """Whether a chat has enough messages for the cache to be faster than rendering it."""
        return type(messages) is list and len(messages) >= _MIN_MESSAGES

    def begin(
        self, template: ChatTemplate, variables: Mapping[str, Any], messages: list[Any]
    ) -> ChatPrefix | None:
        """Look up a chat. None for a chat that must be rendered whole, and is not kept."""
        resumable = self.prepare(template)
        if resumable is None:
            return None
        try:
            settings = dumped(variables)
        except ValueError:  # no plain data, or nested too deeply
            return None
        salt = hash((id(resumable), settings, *map(_edges, messages[:2])))
        found = self._find(salt, messages)
        known = found
        if known is None or known.variables != settings:
            known = _Chat(resumable, settings, [])
        count = num_same_messages(known.messages, messages)
        self.count(known.sizes[count - 1] if count else 0)
        if (found is None or found.messages) and count / len(messages) < _MOST:
            keys = [_key(salt, messages, len(messages))]
            with self._lock:
                self._add(_Chat(resumable, settings, keys), keys, _BYTES_PER_MESSAGE)
            return None
        return ChatPrefix(count, known, self, salt, variables, messages)

    def _find(self, salt: int, messages: Sequence[Any]) -> _Chat | None:
        """A chat that probably has most of these messages."""
        last = len(messages)
        for number in range(last, max(last - _MOST_NEW, 0), -1):
            found = self._by_key.get(_key(salt, messages, number))
            if found is not None:
                with self._lock:
                    if found in self._recent:
                        self._recent.move_to_end(found)
                return found
        return None

    def keep(self, prefix: ChatPrefix, rest: _Chat, size: int) -> None:
        """Keep the chat of a request."""
        if size > self._max_bytes:
            return
        with self._lock:
            chat = prefix.known
            if prefix.count < len(chat.messages):
                chat = chat.branch(prefix.count)
            chat.extend(prefix.first, rest)
            self._add(chat, rest.keys, size)

    def _add(self, chat: _Chat, keys: Sequence[int], size: int) -> None:
        self._bytes += size - self._recent.pop(chat, 0)
        self._recent[chat] = size
        for key in keys:
            self._by_key[key] = chat
        while self._bytes > self._max_bytes:
            oldest, its_size = self._recent.popitem(last=False)
            self._bytes -= its_size
            for key in oldest.keys:
                if self._by_key.get(key) is oldest:
                    del self._by_key[key]

    def prepare(self, template: ChatTemplate) -> ResumableTemplate | None:
        """The template for chats that go on, proved; None where they must be rendered whole."""
        if template.source not in self._templates:
            self._templates[template.source] = proved(template)
        return self._templates[template.source]


@dataclass(slots=True, eq=False)
class ChatPrefix:
    """The known messages at the beginning of one request, until its prompt is made."""

    count: int  # the number of known messages
    known: _Chat  # the chat that they were compared with
    _cache: ChatCache
    _salt: int
    _variables: Mapping[str, Any]
    _messages: list[Any]
    first: int = 0  # the first message that is rendered
    _cut: _Cut = _START
    _places: Sequence[Place | None] = ()
    _conversation: Sequence[dict[str, Any]] = ()
    _contents: Sequence[Sequence[Part]] = ()

    def media(self) -> dict[Modality, list[MediaPart]]:
        """The parts of the known messages that stand for an item, by modality, in new lists."""
        media: dict[Modality, list[MediaPart]] = {}
        for number, part in self.known.media:
            if number < self.count:
                media.setdefault(part.modality, []).append(part)
        return media

    def conversation(self) -> list[dict[str, Any]]:
        """The known messages as the template gets them, in a new list. They must not be changed."""
        return list(self.known.conversation[: self.count])

    def render(
        self, conversation: Sequence[dict[str, Any]], contents: Sequence[Sequence[Part]]
    ) -> Continued:
        """Render the messages that are new."""
        template = self.known.template
        first = template.first_new(self.count)
        cut = self.known.cuts[first] if first else None
        if cut is not None:
            self.first, self._cut = first, cut
        self._conversation, self._contents = conversation, contents
        text, self._places = template.render(
            conversation, self._variables, self.first, self._cut.state
        )
        rest = self._cut.overlap + text
        return Continued(rest, self._cut.characters, partial(self._prompt, rest))

    def _prompt(self, text: str, ids: TokenIds, ends: Sequence[tuple[int, int]]) -> TokenIds:
        """The prompt of the chat, after it is put into the cache."""
        prompt = np.concatenate((self.known.ids[: self._cut.ids], ids))
        prompt.setflags(write=False)
        new = self._messages[self.count :]
        if new and _is_plain(new) and (self.count or _is_plain(self._variables)):
            cuts = [place and self._cut_at(place, text, ends) for place in self._places]
            self._keep(new, cuts, prompt)
        return prompt

    def _cut_at(self, place: Place, text: str, ends: Sequence[tuple[int, int]]) -> _Cut | None:
        before, at = self._cut, len(self._cut.overlap) + place.at
        number = bisect_right(ends, at, key=itemgetter(0))
        characters, ids = ends[number - 1] if number else (0, 0)
        if at - characters > _LONGEST_OVERLAP:
            return None
        overlap = text[characters:at]
        return _Cut(place.state, before.ids + ids, before.characters + characters, overlap)

    def _keep(self, new: list[Any], cuts: list[_Cut | None], prompt: TokenIds) -> None:
        known, count = self.known, self.count
        # Copied, because what a client sent may be changed by it later.
        copy = marshal.dumps((new, list(self._conversation[count:])))
        messages, conversation = marshal.loads(copy)  # noqa: S302 - written here
        size = len(copy) + (known.sizes[count - 1] if count else 0)
        total = len(self._messages)
        rest = _Chat(
            known.template,
            known.variables,
            [_key(self._salt, self._messages, number) for number in range(count + 1, total + 1)],
            messages,
            [size] * len(new),
            conversation,
            [
                (number, part._replace(source={}, extra={}))
                for number, parts in enumerate(self._contents, count)
                for part in parts
                if isinstance(part, MediaPart)
            ],
            cuts,
            prompt,
        )
        size += prompt.nbytes + _BYTES_PER_MESSAGE * (1 + total)
        self._cache.keep(self, rest, size)


def _edges(message: object) -> tuple[object, ...]:
    """Values that tell a message from most others."""
    content = message.get("content") if type(message) is dict else None
    if type(content) is list and content and type(content[-1]) is dict:
        content = content[-1].get("text")
    if type(content) is not str:
        return ()
    return len(content), content[:_EDGE], content[-_EDGE:]


def _key(salt: int, messages: Sequence[Any], number: int) -> int:
    """The key for a number of leading messages."""
    before, last = messages[max(number - 2, 0)], messages[number - 1]
    return hash((salt, number, _edges(before), _edges(last)))


def _is_plain(value: object) -> bool:
    """Whether a value has only types of JSON; `marshal` writes any object with a buffer."""
    waiting = [value]
    for each in waiting:  # grows while it is walked
        if type(each) is dict:
            waiting += each
            waiting += each.values()
        elif type(each) is list:
            waiting += each
        elif type(each) not in _SCALARS:
            return False
    return True
