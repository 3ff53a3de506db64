"""Small tokenizer.json files: a vocabulary of ``tests/models/shared`` with further tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

MODELS: Final = Path(__file__).parents[1] / "models"
_FLAGS: Final = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def tokenizer(
    base: str,
    *,
    special: Sequence[str | Mapping[str, Any]],
    bos: str | None = None,
    word: str | None = None,
    fill: tuple[int, int] | None = None,
    rstrip: Sequence[str] = (),
    in_vocabulary: bool = False,
    fields: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The content of tokenizer.json.

    Args:
        base: its vocabulary, the name of a file.
        special: texts of special tokens, which follow the vocabulary; or a token's fields.
        bos: the special token that stands before each text.
        word: a merged token of two characters.
        fill: the number of the first filler, and the ID at which the special tokens start.
        rstrip: the special tokens that take the space behind them.
        in_vocabulary: whether the special tokens stand in the vocabulary as well.
        fields: those of tokenizer.json that have another value.
    """
    made: dict[str, Any] = json.loads((MODELS / "shared" / f"{base}.json").read_text("utf-8"))
    vocabulary, added = made["model"]["vocab"], made["added_tokens"]
    if word is not None:
        vocabulary[word] = len(vocabulary)
        made["model"]["merges"].append(" ".join(word))
    if fill is not None:
        number, start = fill
        shift = number - len(vocabulary)
        vocabulary |= {f"<filler {i + shift}>": i for i in range(len(vocabulary), start)}
    for token_id, token in enumerate(special, len(vocabulary)):
        of_token = {"content": token} if isinstance(token, str) else {**token}
        added.append({"id": token_id, "content": "", **_FLAGS, "special": True} | of_token)
    for token in added:
        token["rstrip"] = token["content"] in rstrip
    if in_vocabulary:
        vocabulary |= special_ids(made)
    if bos is not None:
        made["post_processor"] = _bos_template(bos, special_ids(made)[bos])
    return made | (fields or {})


def _bos_template(bos: str, token_id: int) -> dict[str, Any]:
    single = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [
        *single,
        {"SpecialToken": {"id": bos, "type_id": 1}},
        {"Sequence": {"id": "B", "type_id": 1}},
    ]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": {bos: {"id": bos, "ids": [token_id], "tokens": [bos]}},
    }


def special_ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Text of a special token -> its ID."""
    return {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
