"""Wrong usage of the laboratory's commands."""

from __future__ import annotations

import json

import pytest
from command_line import run

from mmroute.model_directory import EMBEDDED_MODEL


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["validate", EMBEDDED_MODEL], 2, "--against ORACLE"),
        (["validate", EMBEDDED_MODEL, "--against", "http://127.0.0.1:1"], 3, "cannot be reached"),
        (["spec", "check", "x", "--modl=y"], 2, "Did you mean '--model'?"),
    ],
)
def test_it_is_told_as_text_and_as_json(arguments: list[str], status: int, words: str) -> None:
    told = run(*arguments)
    assert told.status == status
    assert words in told.stderr
    told = run(*arguments, "--json")
    assert told.status == status
    assert words in json.loads(told.stdout)["error"]["message"]
