"""A cache of rendered chats: only the new messages of a conversation are processed.

Each request repeats its whole conversation. Its messages are compared, as bytes, with those of
earlier requests. Messages that are the same are not checked and parsed again. They are not rendered
and encoded again either, under two conditions: it is proved that the template writes them as
before, and the tokenizer allows the text to be cut behind them.
"""

from __future__ import annotations

import logging
import marshal
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeGuard

import numpy as np

from mmroute.chat.parts import MediaPart, Part
from mmroute.chat.rendered import Continued
from mmroute.chat.resumable import Place, ResumableTemplate, State
from mmroute.errors import InexactError, Reason
from mmroute.reuse.prefix_cache import PrefixCache, PrefixHashes, num_shared

if TYPE_CHECKING:
    from mmroute.chat.template import ChatTemplate
    from mmroute.geometry import TokenIds
    from mmroute.requests.items import Modality

_LOG: Final = logging.getLogger(__name__)
_MIN_MESSAGES: Final = 24  # fewer are rendered in less time than a lookup takes
_MOST: Final = 0.5  # of the messages
_LONGEST_OVERLAP: Final = 1024  # characters
_HEADER: Final = 5  # bytes that marshal writes before the messages: what follows, and how many
_BYTES_PER_MESSAGE: Final = 1024  # of Python objects, beside the texts
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_ROLES: Final = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


class _Cut(NamedTuple):
    """A point at which the prompt of a chat can be continued: the beginning of a message.

    Attributes:
        state: the template's state at this point.
        ids: the number of leading token IDs that any continuation has.
        characters: the number of characters of the text that these IDs stand for.
        overlap: the text between these characters and this point.
    """

    state: State
    ids: int
    characters: int
    overlap: str


_START: Final = _Cut((), 0, 0, "")


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A chat that was rendered and encoded.

    Attributes:
        template: the template that rendered it.
        variables: all values beside the messages on which its text depends, as bytes.
        messages: the messages as bytes, without their number. It is a view, because copying them
            takes as long as hashing them.
        ends: the position after each message in these bytes.
        conversation: the messages as the template got them.
        media: the parts that stand for an item, each after the number of its message.
        cuts: one for each message, and for the end; None where the prompt cannot be continued.
        ids: the prompt's token IDs.
    """

    template: ResumableTemplate
    variables: bytes
    messages: memoryview
    ends: Sequence[int]
    conversation: Sequence[dict[str, Any]]
    media: Sequence[tuple[int, MediaPart]]
    cuts: Sequence[_Cut | None]
    ids: TokenIds


_Entry: TypeAlias = _Known | PrefixHashes
"""A chat; or the hashes of its prefixes, for a chat that was requested once."""


class ChatCache(PrefixCache[_Entry]):
    """A prefix cache of the chats of one model. Safe to share between threads.

    A chat is kept at its second request, which may have more messages. Keeping a chat takes nearly
    as long as answering it, and many chats are requested only once. The counters are in bytes of
    messages.

    Args:
        max_bytes: the limit for the size of all chats together.
    """

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._templates: dict[str, ResumableTemplate | None] = {}

    @staticmethod
    def is_long_enough(messages: object) -> TypeGuard[list[Any]]:
        """Whether a chat has enough messages for the cache to be faster than rendering it."""
        return type(messages) is list and len(messages) >= _MIN_MESSAGES

    def begin(
        self, template: ChatTemplate, variables: Mapping[str, Any], messages: list[Any]
    ) -> ChatPrefix | None:
        """Look up a chat. None for a chat that must be rendered whole, and is not kept.

        Args:
            template: the template that renders the chat.
            variables: all values beside the messages on which its text depends.
            messages: the request's messages, not yet checked.
        """
        resumable = self.prepare(template)
        if resumable is None:
            return None
        try:
            dumped, settings = _dumped(messages), _dumped(variables)
        except ValueError:  # no plain data, or nested too deeply
            return None
        salt = hash((id(resumable), settings))
        body = memoryview(dumped)[_HEADER:]
        found, hashes = self.find(body, salt=salt)
        if not hashes:
            return None
        known = _Known(resumable, b"", body[:0], (), (), (), (None,), np.empty(0, np.uint32))
        if isinstance(found, _Known) and found.template is resumable:
            known = found if found.variables == settings else known
        count = num_shared(known.ends, known.messages, dumped, _HEADER)
        self.count(known.ends[count - 1] if count else 0)
        # Whether the chat was there before: the beginning of all messages, or most of them.
        seen = hashes[: len(found)] == found if isinstance(found, tuple) else False
        if not (seen or count / len(messages) >= _MOST):
            self.put(hashes, hashes, body, size=0)
            return None
        return ChatPrefix(count, self, known, hashes, variables, settings, messages, dumped)

    def prepare(self, template: ChatTemplate) -> ResumableTemplate | None:
        """The template for chats that go on, proved; None where they must be rendered whole.

        The first call of a template takes some 10 ms.
        """
        if template.source not in self._templates:
            self._templates[template.source] = proved(template)
        return self._templates[template.source]


@dataclass(slots=True, eq=False)
class ChatPrefix:
    """The known messages at the beginning of one request, until its prompt is made.

    Attributes:
        count: the number of known messages.
    """

    count: int
    _cache: PrefixCache[_Entry]
    _known: _Known
    _hashes: PrefixHashes
    _variables: Mapping[str, Any]
    _settings: bytes
    _messages: Sequence[Any]
    _dumped: bytes
    _first: int = 0
    _cut: _Cut = _START
    _places: Sequence[Place | None] = ()
    _conversation: Sequence[dict[str, Any]] = ()
    _contents: Sequence[Sequence[Part]] = ()

    def media(self) -> dict[Modality, list[MediaPart]]:
        """The parts of the known messages that stand for an item, by modality, in new lists."""
        media: dict[Modality, list[MediaPart]] = {}
        for number, part in self._known.media:
            if number < self.count:
                media.setdefault(part.modality, []).append(part)
        return media

    def conversation(self) -> list[dict[str, Any]]:
        """The known messages as the template gets them, in a new list. They must not be changed."""
        return list(self._known.conversation[: self.count])

    def render(
        self, conversation: Sequence[dict[str, Any]], contents: Sequence[Sequence[Part]]
    ) -> Continued:
        """Render the messages that are new.

        Args:
            conversation: all messages as the template gets them.
            contents: the parts of the new messages.

        Raises:
            InexactError: as `mmroute.chat.template.pieces_of`.
        """
        template = self._known.template
        first = template.first_new(self.count)
        cut = self._known.cuts[first] if first else None
        if cut is not None:
            self._first, self._cut = first, cut
        self._conversation, self._contents = conversation, contents
        text, self._places = template.render(
            conversation, self._variables, self._first, self._cut.state
        )
        rest = self._cut.overlap + text
        return Continued(rest, self._cut.characters, partial(self._prompt, rest))

    def _prompt(self, text: str, ids: TokenIds, ends: Sequence[tuple[int, int]]) -> TokenIds:
        """The prompt of the chat, after it is put into the cache."""
        prompt = np.concatenate((self._known.ids[: self._cut.ids], ids))
        prompt.setflags(write=False)
        new = self._messages[self.count :]
        same_variables = self._settings == self._known.variables
        if new and _is_plain(new) and (same_variables or _is_plain(self._variables)):
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

    def _keep(self, messages: Sequence[Any], cuts: Sequence[_Cut | None], prompt: TokenIds) -> None:
        known, count = self._known, self.count
        lengths = [len(_dumped(message)) for message in messages]
        ends = accumulate(lengths, initial=known.ends[count - 1] if count else 0)
        # Copied, because what a client sent may be changed by it later.
        copied = marshal.loads(_dumped(self._conversation[count:]))  # noqa: S302 - written here
        media = [
            (number, part._replace(source={}, extra={}))
            for number, parts in enumerate(self._contents, count)
            for part in parts
            if isinstance(part, MediaPart)
        ]
        kept = _Known(
            known.template,
            self._settings,
            memoryview(self._dumped)[_HEADER:],
            [*known.ends[:count], *islice(ends, 1, None)],
            [*known.conversation[:count], *copied],
            [*[each for each in known.media if each[0] < count], *media],
            [*known.cuts[: self._first], *cuts],
            prompt,
        )
        size = 2 * len(self._dumped) + prompt.nbytes + _BYTES_PER_MESSAGE * len(kept.ends)
        self._cache.put(kept, self._hashes, kept.messages, size=size)


def proved(template: ChatTemplate) -> ResumableTemplate | None:
    """The resumable template, if it writes all probe chats like the original; else None."""
    resumable = ResumableTemplate.of(template.source)
    if resumable is None:
        return None
    for roles in ("suauaua", "uauauau", "utatuaattuu", "uusuaasu"):  # a template may refuse some
        conversation = [
            _probe(_ROLES[role], number, template.content_format)
            for number, role in enumerate(roles)
        ]
        for known in range(1, len(conversation)):
            if not _agree(template, resumable, conversation, known):
                _LOG.warning("%s is rendered whole: a probe chat went wrong", template.origin)
                return None
    return resumable


def _probe(role: str, number: int, content_format: str) -> dict[str, Any]:
    text = f" {role} {number} "
    if role == "tool":
        return {"role": role, "content": text, "tool_call_id": f"call-{number}"}
    images = [{"type": "image"}] * (number % 3 if role == "user" else 0)
    parts = [*images, {"type": "text", "text": text}]
    message: dict[str, Any] = {
        "role": role,
        "content": parts if content_format == "openai" else text,
    }
    if role == "assistant" and not number % 3:
        function = {"name": "look", "arguments": {"at": number}}
        message["tool_calls"] = [{"id": f"call-{number}", "type": "function", "function": function}]
    return message


def _agree(
    template: ChatTemplate,
    resumable: ResumableTemplate,
    conversation: Sequence[dict[str, Any]],
    known: int,
) -> bool:
    """Whether a chat has the same text if it is rendered whole, and if it is resumed."""
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    variables = {**tokens, "add_generation_prompt": True}

    def whole() -> str:
        return template.render(
            conversation, variables=tokens, add_generation_prompt=True, continue_final_message=False
        )

    def resumed() -> str:
        return before + resumable.render(conversation, variables, first, state)[0]

    try:
        text, places = resumable.render([*conversation[:known], conversation[0]], variables)
    except InexactError:
        return True  # no chat goes on behind one without a text
    first = resumable.first_new(known)
    place = places[first] if first else None
    before, state = ("", ()) if place is None else (text[: place.at], place.state)
    first = 0 if place is None else first
    return _text_or_refusal(whole) == _text_or_refusal(resumed)


def _text_or_refusal(render: Callable[[], str]) -> str | Reason:
    try:
        return render()
    except InexactError as error:
        return error.reason


def _dumped(value: Any) -> bytes:
    """Bytes that tell values apart by their types and the order of their keys.

    Raises:
        ValueError: the value is no plain data, or nested too deeply.
    """
    # Version 0 writes equal values alike, whether they are one object or several.
    return marshal.dumps(value, 0)


def _is_plain(value: object) -> bool:
    """Whether a value has only types of JSON.

    `_dumped` writes any object with a buffer, such as an array, as the same kind of bytes.
    """
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
