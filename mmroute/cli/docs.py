"""``mmroute docs``: the pages of the documentation, as they are installed."""

from __future__ import annotations

import argparse
import importlib.resources
import json
import pydoc
import sys
from importlib.resources.abc import Traversable
from pathlib import Path

from mmroute.cli.arguments import Commands, add_command
from mmroute.cli.output import failed, print_table
from mmroute.errors import did_you_mean

_EPILOG = """\
  mmroute docs            the list of pages
  mmroute docs reasons    one of them, in Markdown

exit status: 0 shown; 2 there is no such page
"""


def add_docs(commands: Commands) -> None:
    """Add the command."""
    docs = add_command(commands, "docs", "show a page of the documentation", _docs, _EPILOG)
    docs.add_argument("topic", metavar="TOPIC", nargs="?", help="name of a page")


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
    page = pages.get(arguments.topic.removesuffix(".md"))
    if page is None:
        near = did_you_mean(arguments.topic, pages)
        return failed(
            arguments, f"no page is named {arguments.topic!r} (`mmroute docs` lists them){near}"
        )
    text = page.read_text(encoding="utf-8")
    if arguments.json:
        print(json.dumps({"topic": arguments.topic, "text": text}))
    elif sys.stdout.isatty():
        pydoc.pager(text)
    else:
        print(text, end="")
    return 0


def _pages() -> list[Traversable]:
    installed = importlib.resources.files("mmroute") / "docs"
    # In a source checkout the pages are beside the package; a wheel has them inside.
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "docs"
    return [page for page in folder.iterdir() if page.name.endswith(".md")]
