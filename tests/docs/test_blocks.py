"""The pages a newcomer reads: their Python and commands run, their links lead somewhere.

A Python block that needs a server has the line ``<!-- not run: WHY -->`` before it, and is run by
``test_blocks_with_servers.py`` or ``tests/slow/ray``. The
others of a page run in order, as one program; hub names stand for small models. The commands of
`NOT_RUN` are only parsed, and those that listen only check their options. Output that a page shows
in a ``text`` block behind a command is compared. ``tests/server/test_server_clients.py`` runs what
calls curl, and ``test_blocks_with_servers.py`` the trace.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from command_line import run
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT

from mmroute.cli import _parser
from mmroute.cli.docs import _sections
from mmroute.health import self_check
from mmroute.model_directory import EMBEDDED_MODEL

README: Final = ROOT / "README.md"
PAGES: Final = (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
NOTES: Final = (
    *sorted((ROOT / "benchmarks").glob("**/*.md")),
    *sorted((ROOT / "tests" / "core" / "conformance").glob("*.md")),
)
SMALL: Final = {"Qwen/Qwen2.5-VL-3B-Instruct": "small-qwen2.5-vl"}
STAND_FOR: Final = {
    "./acme-vl": "Qwen/Qwen2.5-VL-3B-Instruct",
    "./qwen": "Qwen/Qwen2.5-VL-3B-Instruct",
    "acme_vl.toml": str(ROOT / "model_specs" / "qwen2_5_vl.toml"),
    "requests.jsonl": str(ROOT / "examples" / "requests.jsonl"),
}
NOT_RUN: Final = {  # words of a command, and what it needs
    "vllm": "vLLM",
    "--oracle": "vLLM",
    "--engine": "a running engine",
    "tcp://127.0.0.1:5557": "a running engine",
    "recording.jsonl": "a recording of one",
    "http://127.0.0.1:8001": "a running engine",
    "bundle": "a port that others know",
    "trace.jsonl": "what the script before it writes",
}
FOUND: Final = {"explain": 3, "--events": 1}  # exit status of what finds a cause on the page
BLOCK: Final = re.compile(
    r"(?P<skip><!-- not run: .+ -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL
)
SHELL: Final = re.compile(r"```sh\n(?P<text>.*?)```(\n\n```text\n(?P<shown>.*?)```)?", re.DOTALL)
CALL: Final = re.compile(r"(^|/|\| )mmroute (?!\()")
ANCHOR: Final = re.compile(r"\]\((?!https?:)([^)#]*\.md)?#([^)]+)\)")
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


def commands(page: Path) -> Iterator[tuple[list[str], str | None]]:
    """The arguments of every call of mmroute in a page, and the output that is shown behind it."""
    text = page.read_text(encoding="utf-8")
    for block in SHELL.finditer(text):
        lines = block["text"].replace("\\\n", " ").splitlines()
        calls = [line[found.end() :] for line in lines if (found := CALL.search(line))]
        for number, call in enumerate(calls, 1):
            words = shlex.split(call, comments=True)
            ends = [n for n, word in enumerate(words) if word in {"|", "<", ">", "&&", "&"}]
            last = number == len(calls)
            yield words[: min(ends, default=len(words))], block["shown"] if last else None


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages are read beside an installed package; a checkout may have no compiled parts."""
    monkeypatch.setattr(self_check, "has_extension", lambda: True)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=page_name)
def test_python_runs(page: Path, small_model: Callable[[str], Path]) -> None:
    code = "\n".join(blocks(page, "python"))
    for name, small in SMALL.items():
        code = code.replace(name, str(small_model(small)))
    exec(compile(code, str(page), "exec"), {})  # noqa: S102 - the pages are our own


@pytest.mark.parametrize("page", [p for p in PAGES if [*commands(p)]], ids=page_name)
def test_commands_run(
    page: Path, small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for words, shown in commands(page):
        if not NOT_RUN.keys().isdisjoint(words):
            _parser().parse_args(words)  # a wrong one exits
            continue
        called = [STAND_FOR.get(word, word) for word in words]
        called = [str(small_model(SMALL[word])) if word in SMALL else word for word in called]
        if words[0] == "serve":
            called.append("--check-config")
        finished = run(*called, stdin='{"prompt": "Hello"}')
        expected = next((FOUND[word] for word in words if word in FOUND), 0)
        assert finished.status == expected, (words, finished.stderr)
        assert shown is None or finished.stdout == shown, words


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=page_name)
def test_links_lead_to_files(page: Path) -> None:
    links = [found["path"] for found in LINK.finditer(page.read_text(encoding="utf-8"))]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=page_name)
def test_links_lead_to_sections(page: Path) -> None:
    """`mmroute docs PAGE#SECTION` shows each."""
    links = ANCHOR.findall(page.read_text(encoding="utf-8"))
    targets = [((page.parent / path if path else page), anchor) for path, anchor in links]
    missing = [
        (path, anchor)
        for path, anchor in targets
        if anchor not in dict(_sections(path.read_text(encoding="utf-8")))
    ]
    assert missing == []


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


def test_the_picture_has_the_figures_of_the_page() -> None:
    picture = (ROOT / "docs" / "request.svg").read_text(encoding="utf-8")
    page = (ROOT / "benchmarks" / "routers" / "README.md").read_text(encoding="utf-8")
    shares = re.findall(r">([0-9.]+%)<", picture)
    assert len(shares) == 5
    assert [share for share in shares if f" {share} " not in page] == []


def test_every_dependency_is_explained() -> None:
    """RELEASING.md names what is installed, and constraints.txt fixes its version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    fixed = {
        canonicalize_name(line.partition("==")[0])
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    needed = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    assert needed <= fixed
    released = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
    assert [name for name in needed if f"| {name} |" not in released] == []
    extras = project["optional-dependencies"].keys() - {"test"}
    assert [extra for extra in extras if f"| `{extra}` |" not in page] == []
