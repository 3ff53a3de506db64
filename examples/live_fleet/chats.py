"""Chats about pictures: an assistant that answers questions about the pages of documents."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SIDE = 448  # pixels: all pictures have one size, as the pages of a scanner do
DOCUMENTS = 28
PAGES = 3
PRIVATE = 0.15  # the share of chats with an instruction of their own
UPLOAD = 0.2  # the share of later turns with a picture that nobody else has
TURNS = (1, 1, 2, 2, 3)
AT_A_TIME = 8  # chats that are open
INSTRUCTION = (
    "You are the assistant of an office. You get scanned pages of invoices, contracts and letters. "
    "Read all of them before you answer. Quote numbers and dates as they are printed. "
)
QUESTIONS = (
    "Summarise these pages in three sentences.",
    "Which amounts are on these pages, and what are they for?",
    "Who signed this, and when?",
    "Is there a deadline? If there is one, say what happens after it.",
)
ANSWER = "The pages show an order of three items, its total, and the date by which it is due. "


@dataclass(frozen=True, slots=True)
class Turn:
    """One request.

    Attributes:
        chat: the chat's number.
        messages: of the request, which are those of the turn before and two more.
    """

    chat: int
    messages: list[dict[str, Any]]


def picture(seed: str) -> dict[str, Any]:
    """A content part with a picture of coloured bands, of which each seed has its own."""
    colours = random.Random(seed)
    rows = b"".join(b"\0" + colours.randbytes(3) * SIDE for _ in range(SIDE))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0))
    file = (
        b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")
    )
    url = f"data:image/png;base64,{base64.b64encode(file).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def make_turns(count: int, seed: int = 0) -> list[Turn]:
    """So many requests, in the order in which they arrive; the same seed gives the same ones."""
    draw = random.Random(seed)
    documents = [[picture(f"{d}/{page}") for page in range(PAGES)] for d in range(DOCUMENTS)]
    turns: list[Turn] = []
    chats: list[list[Turn]] = []
    started = 0
    while len(turns) < count:
        while len(chats) < AT_A_TIME:
            chats.append(_chat(started, draw, documents))
            started += 1
        chat = draw.choice(chats)
        turns.append(chat.pop(0))
        chats = [chat for chat in chats if chat]
    return turns


def _chat(
    number: int, draw: random.Random, documents: Sequence[list[dict[str, Any]]]
) -> list[Turn]:
    own = f"The name of this customer is {draw.randbytes(8).hex()}. "
    first = INSTRUCTION * 2 if draw.random() >= PRIVATE else own + INSTRUCTION * 2
    messages: list[dict[str, Any]] = [{"role": "system", "content": first}]
    shown = draw.choice(documents)
    turns = []
    for at in range(draw.choice(TURNS)):
        if at:
            shown = [picture(f"chat {number}/{at}")] if draw.random() < UPLOAD else []
            messages = [*messages, {"role": "assistant", "content": ANSWER * draw.randint(1, 3)}]
        question = {"type": "text", "text": draw.choice(QUESTIONS)}
        messages = [*messages, {"role": "user", "content": [*shown, question]}]
        turns.append(Turn(number, messages))
    return turns
