"""``mmroute docs``: the pages of the documentation, as they are installed."""

from __future__ import annotations

import argparse
import importlib.resources
import json
import pydoc
import re
import sys
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from mmroute.cli.arguments import Commands, add_command
from mmroute.cli.output import failed, print_table
from mmroute.errors import did_you_mean

_HEADING: Final = re.compile(r"(#+) (.+)")
_EPILOG = """\
  mmroute docs            the list of pages
  mmroute docs reasons    one of them, in Markdown
  mmroute docs match#my-hit-rate-is-zero    one section of it

exit status: 0 shown; 2 there is no such page or section
"""


def add_docs(commands: Commands) -> None:
    """Add the command."""
    docs = add_command(commands, "docs", "show a page of the documentation", _docs, _EPILOG)
    docs.add_argument("topic", metavar="TOPIC", nargs="?", help="name of a page, or PAGE#SECTION")


def _docs(arguments: argparse.Namespace) -> int:
    pages = {page.name.removesuffix(".md"): page for page in _pages()}
    if arguments.topic is None:
        first_lines = {n: p.read_text("utf-8").partition("\n")[0] for n, p in sorted(pages.items())}
        titles = {name: line.removeprefix("#").strip() for name, line in first_lines.items()}
        if arguments.json:
            print(json.dumps(titles))
        else:
            print_table([("TOPIC", "TITLE"), *titles.items()])
        return 0
    name, _, anchor = arguments.topic.partition("#")
    page = pages.get(name.removeprefix("docs/").removesuffix(".md"))  # as links name it
    if page is None:
        near = did_you_mean(name, pages)
        return failed(arguments, f"no page is named {name!r} (`mmroute docs` lists them){near}")
    text = page.read_text(encoding="utf-8")
    if anchor:
        sections = dict(_sections(text))
        if anchor not in sections:
            near = did_you_mean(anchor, sections)
            return failed(arguments, f"{name} has no section {anchor!r}{near}")
        text = sections[anchor]
    if arguments.json:
        print(json.dumps({"topic": arguments.topic, "text": text}))
    elif sys.stdout.isatty():
        pydoc.pager(text)
    else:
        print(text, end="")
    return 0


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Each section of a page, with those below it, by the anchor that its site gives it."""
    lines, heads, is_code = text.splitlines(keepends=True), [], False
    for number, line in enumerate(lines):
        is_code ^= line.startswith("```")
        if not is_code and (found := _HEADING.match(line)):
            anchor = re.sub(r"[^\w\- ]", "", found[2].lower()).strip().replace(" ", "-")
            heads.append((number, len(found[1]), anchor))
    for at, (number, level, anchor) in enumerate(heads):
        end = next((n for n, other, _ in heads[at + 1 :] if other <= level), len(lines))
        yield anchor, "".join(lines[number:end])


def _pages() -> list[Traversable]:
    installed = importlib.resources.files("mmroute") / "docs"
    # In a source checkout the pages are beside the package; a wheel has them inside.
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "docs"
    return [page for page in folder.iterdir() if page.name.endswith(".md")]
