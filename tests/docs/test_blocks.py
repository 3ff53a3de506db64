"""The pages a newcomer reads: their Python runs, their commands parse, their links lead somewhere.

A Python block that needs a server has the line ``<!-- not run: WHY -->`` before it. The blocks of a
page run in order, as one program; hub names stand for small models.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from command_line import run
from paths import ROOT

from mmroute.cli import _parser
from mmroute.model_directory import EMBEDDED_MODEL

README: Final = ROOT / "README.md"
PAGES: Final = (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
SMALL: Final = {"Qwen/Qwen2.5-VL-3B-Instruct": "small-qwen2.5-vl"}
BLOCK: Final = re.compile(
    r"(?P<skip><!-- not run: .+ -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL
)
CALL: Final = re.compile(r"(^|/|\| )mmroute (?!\()")
LINK: Final = re.compile(r"\]\((?!https?:)(?P<path>[^)#]+)")


def page_name(page: Path) -> str:
    return page.stem


def blocks(page: Path, language: str) -> list[str]:
    """The code of a page in one language, without what says that it does not run."""
    return [
        found["text"]
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
        if found["language"] == language and not found["skip"]
    ]


def commands(page: Path) -> list[list[str]]:
    """The arguments of every call of mmroute in a page's shell blocks."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        if call := CALL.search(line):
            words = shlex.split(line[call.end() :])
            ends = [n for n, word in enumerate(words) if word in {"|", "<", ">", "&&", "&"}]
            found.append(words[: min(ends, default=len(words))])
    return found


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=page_name)
def test_python_runs(page: Path, small_model: Callable[[str], Path]) -> None:
    code = "\n".join(blocks(page, "python"))
    for name, small in SMALL.items():
        code = code.replace(name, str(small_model(small)))
    exec(compile(code, str(page), "exec"), {})  # noqa: S102 - the pages are our own


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=page_name)
def test_commands_parse(page: Path) -> None:
    for arguments in commands(page):
        _parser().parse_args(arguments)  # a wrong one exits


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_to_files(page: Path) -> None:
    links = [found["path"] for found in LINK.finditer(page.read_text(encoding="utf-8"))]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_answers_in_the_readme() -> None:
    """Each line of JSON there is a line of the examples, or the command's answer to one."""
    known = set()
    for command, name in (("tokens", "requests"), ("blocks", "images")):
        path = ROOT / "examples" / f"{name}.jsonl"
        answered = run(command, EMBEDDED_MODEL, "--input", str(path))
        known |= {*path.read_text(encoding="utf-8").splitlines(), *answered.stdout.splitlines()}
    shown = [line for block in blocks(README, "json") for line in block.splitlines()]
    assert shown
    assert set(shown) <= known
