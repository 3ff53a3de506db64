"""Hooks of the site's generator."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any, Final

from mmroute.cli import _parser

_OUTSIDE: Final = re.compile(r"\[([^\]]*)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called for each page before it is rendered.

    A link to a file beside `docs/`, which a forge shows and the site does not have, becomes the
    path of the file. The help of all commands goes behind the page that lists them.
    """
    if page.file.src_uri == "commands.md":
        markdown += "".join(
            f"\n## {command.prog}\n\n```text\n{command.format_help()}```\n"
            for command in _commands(_parser())
        )
    return _OUTSIDE.sub(lambda link: f"`{link[2]}`", markdown)


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The commands of a parser that have no commands below them."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001 - argparse has no public name for them
    if not below:
        yield parser
    for action in below:
        for command in action.choices.values():
            yield from _commands(command)
