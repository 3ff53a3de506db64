"""The workload: requests as clients send them, and the pairs that probe a router's credits."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

SIDE: Final = 448  # pixels: most pictures have one size, as the pages of a scanner do
AT_A_TIME: Final = 8  # conversations that are open
PRIVATE: Final = 0.15  # the share of conversations with an instruction of their own in front
UPLOAD: Final = 0.2  # the share of later turns with a picture that nobody else has
TURNS: Final = (1, 1, 2, 2, 3)
# The kinds of conversations, and how often each begins.
KINDS: Final = {"chat": 3, "agent": 3, "document": 5, "pictures": 3, "video": 2}
# Of a fleet to which most tokens come as pictures. A form is a document whose pages a program sends
# with one question at a time. Uploads are talked about by those who sent them.
PICTURES: Final = {"form": 8, "upload": 1, "pictures": 1}
CHATS: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
_STOCK: Final = {"chat": 12, "agent": 4, "document": 28, "pictures": 40, "video": 12, "form": 40,
                 "upload": 1}  # fmt: skip
_ANSWER: Final = "There are three items, a total, and the date by which it is due. "
_TOOLS: Final = ("search", "read_file", "write_file", "run", "calendar", "mail", "map", "translate")
_T = TypeVar("_T")

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request.

    Attributes:
        kind: a key of `KINDS` or `PICTURES`, or the name of a probe.
        session: the number of its conversation.
        body: the JSON object that the client sends.
        path: the route.
    """

    kind: str
    session: int
    body: dict[str, Any]
    path: str = CHATS

    @property
    def data(self) -> bytes:
        """The body as it is sent."""
        return json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class Probe:
    """Two requests: what is credited to the second one after the first?"""

    name: str
    first: Asked
    second: Asked


@cache
def _png(seed: str, side: int) -> str:
    colours = random.Random(seed)
    rows = b"".join(b"\0" + colours.randbytes(3) * side for _ in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        framed = struct.pack(">I", len(data)) + kind + data
        return framed + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    file = (
        b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")
    )
    return base64.b64encode(file).decode()


def picture(seed: str) -> dict[str, Any]:
    """A content part with a picture of coloured bands, of which each seed has its own."""
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_png(seed, SIDE)}"}}


def video(seed: str) -> dict[str, Any]:
    """A content part with a video, as the list of its frames."""
    frames = ",".join(_png(f"{seed}/{n}", SIDE // 2) for n in range(4))
    return {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{frames}"}}


def make_traffic(
    model: str, count: int, seed: int = 0, kinds: Mapping[str, int] = KINDS
) -> list[Asked]:
    """So many requests, in the order in which they arrive; the same seed gives the same ones.

    Args:
        model: the engine's name for the model.
        count: the number of requests.
        seed: the seed of all that is drawn.
        kinds: the kinds of conversations, and how often each begins.
    """
    draw = random.Random(seed)
    asked: list[Asked] = []
    conversations: list[list[Asked]] = []
    started = 0
    while len(asked) < count:
        while len(conversations) < AT_A_TIME:
            conversations.append(_conversation(model, kinds, started, draw))
            started += 1
        turns = draw.choice(conversations)
        asked.append(turns.pop(0))
        conversations = [turns for turns in conversations if turns]
    return asked


def _conversation(
    model: str, kinds: Mapping[str, int], number: int, draw: random.Random
) -> list[Asked]:
    (kind,) = draw.choices(list(kinds), list(kinds.values()))
    about = zipf(draw, range(_STOCK[kind]))
    fields: dict[str, Any] = {"model": model, "max_tokens": 1, "temperature": 0}
    if kind == "agent":
        fields |= {"tools": _tools(about), "tool_choice": "none"}
    own = f"The name of this customer is {draw.randbytes(8).hex()}. "
    private = own if draw.random() < PRIVATE else ""
    messages: list[Message] = [{"role": "system", "content": private + _instruction(kind, about)}]
    shown = _shown(kind, about, draw)
    turns = []
    for at in range(_turns(kind, draw)):
        if at and kind == "agent":
            messages = [*messages, *_tool_turn(number, at, draw)]
        elif at:
            shown = [picture(f"{number}/{at}")] if draw.random() < UPLOAD and kind != "chat" else []
            answer = _ANSWER * draw.randint(1, 3)
            if kind in PICTURES and kind not in KINDS:  # which tells a conversation from others
                answer += draw.randbytes(8).hex()
            messages = [*messages, {"role": "assistant", "content": answer}]
        if not at or kind != "agent":
            text = {"type": "text", "text": zipf(draw, _QUESTIONS)}
            messages = [*messages, {"role": "user", "content": [*shown, text]}]
        turns.append(Asked(kind, number, {**fields, "messages": messages}))
    return turns


def _turns(kind: str, draw: random.Random) -> int:
    if kind == "upload":
        return draw.randint(2, 5)
    return 1 if kind == "form" else draw.choice(TURNS) + (kind == "agent")


def zipf(draw: random.Random, of: Sequence[_T]) -> _T:
    """One of these: the n-th is drawn in proportion to 1/n."""
    (drawn,) = draw.choices(of, [1 / rank for rank in range(1, len(of) + 1)])
    return drawn


def _instruction(kind: str, about: int) -> str:
    subject = f"You are assistant {about} of an office, for chats. " if kind == "chat" else ""
    return subject + _INSTRUCTION * 2 + f"This conversation is of the kind {kind}. "


def _shown(kind: str, about: int, draw: random.Random) -> list[dict[str, Any]]:
    match kind:
        case "document" | "form":
            return [picture(f"document {about}/{page}") for page in range(3)]
        case "pictures":  # the stock of a shop: the same picture may stand there twice
            stock = range(_STOCK[kind])
            return [picture(f"item {zipf(draw, stock)}") for _ in range(draw.randint(2, 4))]
        case "video":
            return [video(f"video {about}")]
        case "upload":
            return [picture(draw.randbytes(8).hex()) for _ in range(draw.randint(1, 3))]
    return []


def _tools(about: int) -> list[dict[str, Any]]:
    """The tools of one kind of agent, in its order."""
    names = random.Random(about).sample(_TOOLS, 5)
    query = {"type": "string", "description": "What to look for, or to work on."}
    parameters = {"type": "object", "properties": {"query": query}, "required": ["query"]}
    return [
        {"type": "function", "function": {
            "name": name, "description": f"Calls {name}.", "parameters": parameters}}
        for name in names
    ]  # fmt: skip


def _tool_turn(number: int, at: int, draw: random.Random) -> list[Message]:
    call = f"call-{number}-{at}"
    arguments = json.dumps({"query": draw.choice(_QUESTIONS)})
    function = {"name": draw.choice(_TOOLS), "arguments": arguments}
    calls = [{"id": call, "type": "function", "function": function}]
    found = _ANSWER * draw.randint(2, 6) + draw.randbytes(4).hex()
    return [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": call, "content": found},
    ]


def make_probes(model: str, adapter: str | None = None) -> list[Probe]:
    """The pairs, each with a beginning of its own.

    Args:
        model: the engine's name for the model.
        adapter: its name for a LoRA adapter; None leaves that pair out.
    """
    draw = random.Random("probes 0")
    base = {"model": model, "max_tokens": 1, "temperature": 0}
    probes: list[Probe] = []

    def probe(name: str, ask: Callable[[list[Message]], tuple[dict[str, Any], dict[str, Any]]],
              path: str = CHATS) -> None:  # fmt: skip
        own = draw.randbytes(8).hex()
        first, second = ask([{"role": "system", "content": f"{own}. {_INSTRUCTION}"}])
        session = -2 * len(probes) - 1
        one, two = ({**base, **fields} for fields in (first, second))
        probes.append(Probe(name, Asked(name, session, one), Asked(name, session - 1, two, path)))

    def user(*parts: dict[str, Any]) -> Message:
        return {"role": "user", "content": [*parts, {"type": "text", "text": _LONG}]}

    def chat(*messages: Message, **more: Any) -> dict[str, Any]:
        return {"messages": list(messages), **more}

    def as_prompt(system: Message) -> dict[str, Any]:
        spoken = (("system", system["content"]), ("user", _LONG))
        text = "".join(f"<|im_start|>{role}\n{said}<|im_end|>\n" for role, said in spoken)
        return {"prompt": f"{text}<|im_start|>assistant\n"}

    one, other = picture("probe"), picture("another probe")
    answer: Message = {"role": "assistant", "content": _ANSWER}
    probe("the same request", lambda s: (chat(*s, user(one)),) * 2)
    probe("the next turn", lambda s: (chat(*s, user(one)), chat(*s, user(one), answer, user())))
    probe(
        "another picture of the same size", lambda s: (chat(*s, user(one)), chat(*s, user(other)))
    )
    probe(
        "the same picture twice, after it and another",
        lambda s: (chat(*s, user(one, other)), chat(*s, user(one, one))),
    )
    probe(
        "another video of the same size",
        lambda s: (chat(*s, user(video("probe"))), chat(*s, user(video("another")))),
    )
    probe(
        "other tools, of which the template takes none",
        lambda s: (
            chat(*s, user(), tools=_tools(0), tool_choice="none"),
            chat(*s, user(), tools=_tools(1), tool_choice="none"),
        ),
    )
    probe(
        "the system prompt as `developer`",
        lambda s: (chat(*s, user()), chat({**s[0], "role": "developer"}, user())),
    )
    probe(
        "the same prompt by the completions API",
        lambda s: (chat(*s, user()), as_prompt(s[0])),
        COMPLETIONS,
    )
    probe(
        "another cache salt",
        lambda s: (chat(*s, user(), cache_salt="a"), chat(*s, user(), cache_salt="b")),
    )
    if adapter is not None:
        probe("a LoRA adapter", lambda s: (chat(*s, user()), chat(*s, user(), model=adapter)))
    return probes  # fmt: skip


_INSTRUCTION: Final = (
    "You are the assistant of an office. You get scanned pages of invoices, contracts and letters. "
    "Read all of them before you answer. Quote numbers and dates as they are printed. "
)
_QUESTIONS: Final = (
    "Summarise this in three sentences.",
    "Which amounts are named, and what are they for?",
    "Who signed this, and when?",
    "Is there a deadline? If there is one, say what happens after it.",
)
_LONG: Final = " ".join(_QUESTIONS) * 4
