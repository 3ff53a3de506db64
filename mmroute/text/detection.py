"""The kind of a tokenizer file, recognized by its content."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Final

_BYTES_READ: Final = 65_536
_ONE_BYTE_LENGTHS: Final = range(0x80)  # a protobuf length with the top bit set has more bytes
_RANK_LINE: Final = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")


class FileKind(StrEnum):
    """The kinds of files that hold a tokenizer."""

    TOKENIZER_JSON = "tokenizer.json"
    TEKKEN = "tekken.json"
    VOCAB_JSON = "vocab.json"
    SENTENCEPIECE = "SentencePiece model"
    TIKTOKEN = "tiktoken rank file"
    GGUF = "GGUF"


def kind_of_file(path: Path) -> FileKind | None:
    """The kind of tokenizer that a file holds; None if it holds none."""
    with path.open("rb") as file:
        start = file.read(_BYTES_READ)
    if start.startswith(b"GGUF"):
        return FileKind.GGUF
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return _kind_of_json(path)
    if _RANK_LINE.match(start):
        return FileKind.TIKTOKEN
    if _begins_with_a_piece(start):
        return FileKind.SENTENCEPIECE
    return None


def _kind_of_json(path: Path) -> FileKind | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    if isinstance(value.get("model"), dict):
        return FileKind.TOKENIZER_JSON
    if isinstance(value.get("config"), dict) and isinstance(value.get("vocab"), list):
        return FileKind.TEKKEN
    if value and all(type(token_id) is int for token_id in value.values()):
        return FileKind.VOCAB_JSON
    return None


def _begins_with_a_piece(start: bytes) -> bool:
    """Whether these are the first bytes of a ModelProto: a piece, which begins with its text."""
    match list(start[:4]):
        case [0x0A, size, 0x0A, text_size]:
            return size in _ONE_BYTE_LENGTHS and text_size <= size - 2
    return False
