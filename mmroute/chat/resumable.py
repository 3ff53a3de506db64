"""Chat templates that can continue after messages whose text is known.

A template is a program that may look at any message at any place. Most have one loop that writes
message after message, and carry only counters from one to the next. This module reads the syntax
tree of a template. It proves, where it can, that the text of a message depends only on the
messages before it and on a fixed number of messages after it. Such a template is compiled a
second time: its loop begins after the known messages, with the counters that it had there. The
code before and after the loop runs each time, on all messages.

The proof accepts only forms that it knows. A template with any other form is rendered whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import jinja2
from jinja2 import nodes

from mmroute.chat.template import ChatTemplate, environment, pieces_of
from mmroute.errors import InexactError, Reason

_RUN: Final = "mmroute_run"  # the variable by which the second template finds its `_Run`
_NODES: Final = frozenset({
    nodes.Add, nodes.And, nodes.Assign, nodes.Call, nodes.CallBlock, nodes.Compare, nodes.Concat,
    nodes.CondExpr, nodes.Const, nodes.Dict, nodes.Div, nodes.ExtensionAttribute, nodes.Filter,
    nodes.FloorDiv, nodes.For, nodes.Getattr, nodes.Getitem, nodes.If, nodes.Keyword, nodes.List,
    nodes.Mod, nodes.Mul, nodes.NSRef, nodes.Name, nodes.Neg, nodes.Not, nodes.Operand, nodes.Or,
    nodes.Output, nodes.Pair, nodes.Slice, nodes.Sub, nodes.Template, nodes.TemplateData,
    nodes.Test, nodes.Tuple,
})  # fmt: skip
# Functions whose answer depends on how often they were called, and the template itself.
_REFUSED_NAMES: Final = frozenset({"cycler", "joiner", "self", _RUN})
# What these filters give can be read once: kept from before the loop, it would be empty for all
# messages but the first.
_LAZY: Final = frozenset({
    "batch", "items", "map", "reject", "rejectattr", "reverse", "select", "selectattr", "slice",
    "unique",
})  # fmt: skip
# What may be asked of the loop over messages: the messages behind its own that the answer needs.
_OF_LOOP: Final[Mapping[object, int]] = {
    "index": 0, "index0": 0, "first": 0, "last": 1, "nextitem": 1,
}  # fmt: skip
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})

State: TypeAlias = tuple[Any, ...]
"""The values of all slots of a template."""
_Slot: TypeAlias = tuple[str, str]


class Place(NamedTuple):
    """The beginning of a message, or the end of the last one."""

    at: int  # the offset in the text, in characters
    state: State  # the template's state at this place


@dataclass(frozen=True, slots=True)
class ResumableTemplate:
    """A chat template that can continue after messages whose text is known."""

    fewest: int  # the number of messages that must be known
    ahead: int  # the number of later messages on which the text of a message depends
    slots: tuple[_Slot, ...]  # the attributes of namespaces that the loop over messages sets
    _compiled: jinja2.Template

    @classmethod
    def of(cls, source: str) -> ResumableTemplate | None:
        """The template in its resumable form; None if there is no proof for it."""
        tree = environment().parse(source)
        try:
            proof = _Proof(tree)
        except _UnprovedError:
            return None
        slots = tuple(proof.slots)
        listed: Any = proof.loop.iter
        proof.loop.iter = _ask("rest", [listed, *(_name(name) for name, _ in slots)])
        values = [nodes.Getattr(_name(n), attr, "load") for n, attr in slots]
        proof.loop.body.insert(0, nodes.Output([_ask("mark", [_name("loop"), *values])]))
        end = nodes.Output([_ask("mark", [nodes.Const(None), *values])])
        tree.body.insert(tree.body.index(proof.loop) + 1, end)
        tree.set_lineno(1).set_environment(_environment())
        return cls(proof.fewest, proof.ahead, slots, _environment().from_string(tree))

    def first_new(self, known: int) -> int:
        """The first message whose text may differ from before, if so many messages are known."""
        first = known - self.ahead
        return first if first >= self.fewest else 0

    def render(
        self,
        conversation: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        first: int = 0,
        state: State = (),
    ) -> tuple[str, list[Place | None]]:
        """Render a chat from one of its messages on."""
        run = _Run(conversation, first, self.slots, state)
        texts: list[str] = []
        starts: list[int] = []
        end = 0
        for piece in pieces_of(self._compiled, {**variables, "messages": conversation, _RUN: run}):
            if piece is not run.marked:
                texts.append(piece)
                end += len(piece)
                continue
            if first and not starts:  # what stands before the loop is known, too
                texts, end = [], 0
            starts.append(end)
        places = [
            Place(at, state) if _SCALARS.issuperset(map(type, state)) else None
            for at, state in zip(starts, run.states, strict=True)
        ]
        return "".join(texts), [None] * (0 if first else run.left_out) + places


class _Run:
    """The state of rendering one chat by the second template, which calls its methods."""

    def __init__(
        self, conversation: Sequence[Any], first: int, slots: Sequence[_Slot], state: State
    ) -> None:
        # The states at the place of each message that is rendered, and at the end.
        self.states: list[State] = []
        self.left_out = 0  # the number of messages before the first one of the loop
        # The piece of text with which the template marks a place.
        self.marked = f"\0{first}"  # an object of its own, known by its identity
        self._conversation = conversation
        self._first = first
        self._slots = slots
        self._state = state

    def rest(self, listed: Sequence[Any], *namespaces: Any) -> Sequence[Any]:
        """The items of the loop from the first new message on. It also restores the slots."""
        self.left_out = len(self._conversation) - len(listed)
        if not self._first:
            return listed
        for namespace, (_, name), value in zip(namespaces, self._slots, self._state, strict=True):
            namespace[name] = value
        return listed[self._first - self.left_out :]

    def mark(self, loop: Any, *state: Any) -> str:
        """Note the place of a message, and return its number in the whole chat."""
        if self._first and not self.states and loop is not None:
            loop.index0 = self._first - self.left_out
        self.states.append(state)
        return self.marked


class _UnprovedError(Exception):
    """The template has a form that the proof does not know."""


class _Scope(Enum):
    """The part of the template in which a node is."""

    BEFORE = auto()  # the loop over messages
    LOOP = auto()  # in it, where `loop` is that loop
    WITHIN = auto()  # in a loop in it


class _Proof:
    """The proof that a message's text depends on no later messages but the next `ahead` ones.

    Attributes:
        ahead: as in `ResumableTemplate`
    """

    loop: nodes.For  # the loop over the messages

    def __init__(self, tree: nodes.Template) -> None:
        for node in tree.find_all(nodes.Node):
            _require(type(node) in _NODES)
            _require(not (isinstance(node, nodes.Name) and node.name in _REFUSED_NAMES))
            _require(not (isinstance(node, nodes.For) and node.recursive))
        # As in `ResumableTemplate`, in the order in which they were found.
        self.slots: dict[_Slot, None] = {}
        self.fewest = self.ahead = 0  # as in `ResumableTemplate`
        self._lists = {"messages"}  # and every variable that is set to it, or to its end
        self._left_out = 0  # at most so many messages are missing in these
        self._namespaces: set[str] = set()
        for statement in tree.body:
            if isinstance(statement, nodes.For) and self._missing(statement.iter) is not None:
                self.loop = statement
                break
            self._check(statement, _Scope.BEFORE)
        # Behind a second loop over them all messages would be written again.
        over = [self._missing(loop.iter) for loop in tree.find_all(nodes.For)]
        _require(len(over) - over.count(None) == 1)
        _require(isinstance(self.loop.target, nodes.Name))
        _require(self.loop.test is None and not self.loop.else_)
        for node in (self.loop.target, *self.loop.body):
            self._check(node, _Scope.LOOP)
        self.fewest += 1 + self._left_out

    def _check(self, node: nodes.Node, scope: _Scope, *, behind_first: bool = False) -> None:
        """Refuse nodes that may read later messages, and note values that the next message gets."""
        match node:
            case nodes.Name():
                _require(node.name not in self._lists)
                _require(not (node.name == "loop" and scope is _Scope.LOOP))
                _require(not (node.ctx == "store" and node.name in self._namespaces))
            case nodes.NSRef():
                _require(node.name in self._namespaces)
                self.slots[node.name, node.attr] = None
            case nodes.Assign():
                self._assignment(node, scope)
            case nodes.For():
                self._other_loop(node, scope)
            case nodes.Or():
                self._check(node.left, scope, behind_first=behind_first)
                behind_first = behind_first or _asks_whether_first(node.left)
                self._check(node.right, scope, behind_first=behind_first)
            case nodes.Getattr(node=nodes.Name(name="loop"), attr=asked) if scope is _Scope.LOOP:
                _require(asked in _OF_LOOP)
                self.ahead = max(self.ahead, _OF_LOOP[asked])
            case nodes.Getitem(node=nodes.Name(name=name)) if name in self._lists:
                self._one_message(node.arg, scope, behind_first=behind_first)
            case _:
                for child in node.iter_child_nodes():
                    self._check(child, scope, behind_first=behind_first)

    def _assignment(self, node: nodes.Assign, scope: _Scope) -> None:
        missing = self._missing(node.node)
        if missing is not None:
            name = node.target.name if isinstance(node.target, nodes.Name) else ""
            _require(scope is _Scope.BEFORE and bool(name) and name not in self._namespaces)
            self._lists.add(name)
            self._left_out += missing
            return
        if scope is _Scope.BEFORE:
            filters = [node.node, *node.node.find_all(nodes.Filter)]
            _require(not any(getattr(each, "name", "") in _LAZY for each in filters))
        self._check(node.node, scope)
        self._check(node.target, scope)
        match node:
            case nodes.Assign(
                target=nodes.Name(name=name), node=nodes.Call(node=nodes.Name(name="namespace"))
            ) if scope is _Scope.BEFORE:
                self._namespaces.add(name)  # from here on it must not be set again

    def _other_loop(self, node: nodes.For, scope: _Scope) -> None:
        _require(node.test is None)  # whose `loop` it would see was not looked into
        for child in (node.iter, *node.else_):
            self._check(child, scope)
        for child in (node.target, *node.body):
            self._check(child, _Scope.WITHIN)

    def _missing(self, value: nodes.Node) -> int | None:
        """The number of leading messages that a list leaves out; None if it is no such list."""
        match value:
            case nodes.Name(name=name) if name in self._lists:
                return 0
            case nodes.Getitem(
                node=nodes.Name(name=name),
                arg=nodes.Slice(start=nodes.Const(value=int() as first), stop=None, step=None),
            ) if name in self._lists and first >= 0:
                return first
        return None

    def _one_message(self, place: nodes.Expr, scope: _Scope, *, behind_first: bool) -> None:
        """Accept ``messages[0]``, and a neighbour of the current message of the loop."""
        index0 = nodes.Getattr(_name("loop"), "index0", "load")
        match place:
            case nodes.Const(value=int() as number) if number >= 0:
                self.fewest = max(self.fewest, number)
            case nodes.Add(left=left, right=nodes.Const(value=int() as distance)) if (
                scope is _Scope.LOOP and left == index0 and distance >= 0
            ):
                self.ahead = max(self.ahead, distance + self._left_out)
            # Before the first message it would be the last one.
            case nodes.Sub(left=left, right=nodes.Const(value=1)) if (
                scope is _Scope.LOOP and left == index0 and behind_first
            ):
                pass
            case _:
                raise _UnprovedError


def _asks_whether_first(node: nodes.Expr) -> bool:
    return node in (
        nodes.Getattr(_name("loop"), "first", "load"),
        nodes.Compare(
            nodes.Getattr(_name("loop"), "index0", "load"), [nodes.Operand("eq", nodes.Const(0))]
        ),
    )


def _require(condition: bool) -> None:
    if not condition:
        raise _UnprovedError


def _name(name: str) -> nodes.Name:
    return nodes.Name(name, "load")


def _ask(method: str, arguments: list[nodes.Expr]) -> nodes.Expr:
    return nodes.Filter(_name(_RUN), method, arguments, [], None, None)


@cache
def _environment() -> jinja2.Environment:
    """The environment of chat templates, with the methods of `_Run` as filters."""
    made = environment().overlay()
    made.filters = {**made.filters, "rest": _Run.rest, "mark": _Run.mark}
    return made


_LOG: Final = logging.getLogger(__name__)
_ROLES: Final = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


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
