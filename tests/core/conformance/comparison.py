"""Comparing answers with vectors: this needs nothing but Python, and no mmroute."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

FILE_SCHEME: Final = "file:"
ANSWER_FIELDS: Final = ("expect", "tags")
NOT_FOLLOWED: Final = "unsupported_processor_kwargs"
SHOWN: Final = 8  # IDs before a difference, and from it on

Decode = Callable[[Sequence[int]], str]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file."""
    # Only a line feed ends a line: strings may hold other separators.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def read_vectors(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The meta line and the cases of a vector file."""
    meta, *cases = read_lines(path)
    assert meta["kind"] == "meta", path
    return meta, cases


def with_files(value: Any, urls: Mapping[str, str]) -> Any:
    """A request with the names of files replaced by their data URLs."""
    if isinstance(value, list):
        return [with_files(item, urls) for item in value]
    if isinstance(value, dict):
        return {key: with_files(item, urls) for key, item in value.items()}
    if isinstance(value, str) and value.startswith(FILE_SCHEME):
        return urls[value.removeprefix(FILE_SCHEME)]
    return value


def request_of(case: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked: a case without its answer."""
    return {name: value for name, value in case.items() if name not in ANSWER_FIELDS}


def expanded(runs: Sequence[tuple[int, int]]) -> list[int]:
    """The token IDs of which a vector has each with how often it stands there in a row."""
    return [token_id for token_id, count in runs for _ in range(count)]


def differences(
    answer: Mapping[str, Any], expected: Mapping[str, Any], decode: Decode | None = None
) -> dict[str, str]:
    """What is wrong with an answer, each part by its name; nothing if it is right.

    Arguments of processors that are not followed may be refused, whatever the engine does.

    Args:
        answer: an answer line; parts that it does not have are not compared, but ``exact``.
        expected: a case's ``expect``.
        decode: the text of token IDs, to show it beside them.
    """
    if "refused" in expected:
        refused = f"SILENT: exact, but the engine refuses: {expected['refused']}"
        return {"exact": refused} if answer["exact"] else {}
    if answer.get("reason") == NOT_FOLLOWED:
        return {}
    if not answer["exact"]:
        why = f"{answer.get('reason')}: {answer.get('message')}"
        return {"exact": f"inexact ({why}), but the engine answers"}
    wrong: dict[str, str] = {}
    if "token_ids" in answer:
        theirs = expanded(expected["token_runs"])
        if answer["token_ids"] != theirs:
            wrong["token_ids"] = first_difference(answer["token_ids"], theirs, decode)
    ranges = sorted(map(_plain, expected["placeholders"]), key=lambda p: int(p["offset"]))
    pairs = [("placeholders", ranges), ("image_identities", expected.get("mm_identifiers"))]
    for name, value in pairs:
        if value is not None and name in answer and answer[name] != value:
            wrong[name] = first_difference(answer[name], value)
    return wrong


def _plain(placeholder: dict[str, Any]) -> dict[str, Any]:
    """A range without its runs if all of its positions are features."""
    if placeholder.get("embed_runs") == [[1, placeholder["length"]]]:
        return {name: value for name, value in placeholder.items() if name != "embed_runs"}
    return placeholder


def hash_difference(ours: Sequence[str], stored: Any) -> str | None:
    """What is wrong with block hashes in hexadecimal; of some only the first and last are kept."""
    if not isinstance(stored, dict):
        return None if ours == stored else first_difference(ours, stored)
    if len(ours) != stored["n"]:
        return f"SILENT: {len(ours)} blocks, the engine has {stored['n']}"
    if ours[: len(stored["first"])] != stored["first"]:
        return first_difference(ours[: len(stored["first"])], stored["first"])
    last = ours[-1] if ours else None
    if last != stored["last"]:
        return f"SILENT: the last is {last}, the engine has {stored['last']}"
    return None


def first_difference(
    ours: Sequence[Any], theirs: Sequence[Any], decode: Decode | None = None
) -> str:
    """Where two sequences part, and what stands there."""
    pairs = enumerate(zip_longest(ours, theirs))
    at = next(i for i, (one, other) in pairs if one != other)
    if decode is None:
        shown = [str(list(each[at : at + 2])) for each in (ours, theirs)]
    else:
        window = slice(max(0, at - SHOWN), at + SHOWN)
        shown = [f"{list(each[window])} {decode(each[window])!r}" for each in (ours, theirs)]
    lengths = f"{len(ours)} of them, the engine has {len(theirs)}"
    return f"SILENT: other from index {at} on ({lengths}): {shown[0]}, the engine has {shown[1]}"
