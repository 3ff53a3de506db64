"""Completion scripts for shells."""

from __future__ import annotations

import argparse
from typing import Any, Final, NoReturn

from mmroute.errors import install_command

_PATHS: Final = frozenset({"MODEL", "FILE", "DIR", "DIRECTORY", "PATH"})
"""The names, in help texts, of arguments that are paths."""


class PrintCompletion(argparse.Action):
    """Prints a shell's completion script for all commands and their options, and exits."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> NoReturn:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error(f"completion scripts need shtab: {install_command('completion')}")
        _mark_paths(parser, shtab.FILE)
        print(shtab.complete(parser, shell=values))
        parser.exit()


def _mark_paths(parser: argparse.ArgumentParser, file: object) -> None:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - nor of these
            for command in action.choices.values():
                _mark_paths(command, file)
        elif action.metavar in _PATHS:
            action.complete = file  # type: ignore[attr-defined]  # where shtab looks
