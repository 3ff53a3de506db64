"""The command line ``mmroute``: each command parses its arguments, calls the library and prints."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final, NoReturn

from mmroute.cli.completion import PrintCompletion
from mmroute.cli.engine_options import adopt_engine
from mmroute.cli.output import EXIT_FAILURE, EXIT_USAGE, failed, say
from mmroute.errors import (
    BlockSizeWarning,
    MissingExtraError,
    MmrouteError,
    ModelIdWarning,
    RandomSeedWarning,
    Reason,
    nearest,
)

__all__ = ["main"]

_EXIT_INTERRUPTED: Final = 130  # 128 plus the number of SIGINT, as in shells
_MODULES: Final = {
    "tokens": "cli.requests",
    "blocks": "cli.requests",
    "resolve": "cli.models",
    "families": "cli.models",
    "validate": "lab.cli.validate",
    "prove": "lab.cli.prove",
    "doctor": "cli.doctor",
    "explain": "lab.cli.explain",
    "spec": "lab.cli.spec",
    "bench": "lab.cli.bench",
    "serve": "server.cli.serve",
    "bundle": "server.cli.bundle",
    "trace": "lab.cli.trace",
    "encode": "text.cli.texts",
    "decode": "text.cli.texts",
    "watch": "lab.cli.watch",
    "docs": "cli.docs",
}
"""Command -> the module that has it. Those of the other houses are known by these names alone."""

# Python 3.11 and 3.14 quote the choices in this message; 3.13 does not.
_INVALID_CHOICE: Final = re.compile(r"invalid choice: '(.*?)'.*\(choose from (.*)\)")


class _UsageError(Exception):
    """The arguments of a command are wrong. It carries the command's name and a message."""


class _Parser(argparse.ArgumentParser):
    """argparse, with a suggestion for a mistyped command or option."""

    _among_positionals = False

    def parse_known_args(  # type: ignore[override]  # argparse's overloads
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        # `parse_known_intermixed_args` calls this method, knows no subcommands, and loses a `--`.
        ordered = self._subparsers is not None or "--" in (args or ())
        if ordered or self._among_positionals:
            return super().parse_known_args(args, namespace)
        self._among_positionals = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._among_positionals = False

    def error(self, message: str) -> NoReturn:
        near = None
        if choice := _INVALID_CHOICE.search(message):
            mistyped, known = choice.groups()
            near = nearest(mistyped, known.replace("'", "").split(", "))
        elif message.startswith("unrecognized arguments: "):
            mistyped = message.split()[2]
            if mistyped.startswith("-") and mistyped != "-":
                near = nearest(mistyped.partition("=")[0], self._option_string_actions)
            elif "--input" in self._option_string_actions:
                near = f"--input {mistyped}"
        suggestion = f". Did you mean {near!r}?" if near else ""
        raise _UsageError(self.prog, f"{message}{suggestion}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit status."""
    if None in (sys.stdin, sys.stdout):
        say("standard input and output must be open")
        return EXIT_FAILURE
    words = sys.argv[1:] if argv is None else argv
    try:
        arguments, unknown = _parser(next(iter(words), None)).parse_known_args(words)
        arguments.words = words
        if unknown:
            arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return _run(arguments)
    except _UsageError as wrong:
        command, message = wrong.args
        if "--json" in words:
            return failed(argparse.Namespace(json=True), message)
        print(f"{command}: error: {message}\nSee `{command} --help`.", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        # The reader of the output has gone. This keeps the interpreter from reporting it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    except KeyboardInterrupt:
        say("interrupted")
        return _EXIT_INTERRUPTED


def _run(arguments: argparse.Namespace) -> int:
    try:
        with warnings.catch_warnings():
            for guess in (BlockSizeWarning, ModelIdWarning, RandomSeedWarning):
                warnings.simplefilter("default", guess)
            # Warnings are shown like other messages of commands, without a line of code.
            warnings.showwarning = lambda message, *_: say(f"warning: {message}")
            if isinstance(getattr(arguments, "engine", None), str):  # serve has one for each model
                adopt_engine(arguments)
            status: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (MmrouteError, MissingExtraError, OSError) as error:
        failure = getattr(arguments, "exit_of_failure", EXIT_FAILURE)
        return failed(arguments, error, EXIT_USAGE if _is_usage(arguments, error) else failure)
    except UnicodeEncodeError as error:
        hint = "set PYTHONIOENCODING=utf-8 if it is stdout that cannot take it"
        return failed(arguments, f"{error}; {hint}", EXIT_FAILURE)
    return status


def _is_usage(arguments: argparse.Namespace, error: Exception) -> bool:
    """Whether an option is wrong: one of mmroute's, or one of the engine's command line."""
    reason = error.reason if isinstance(error, MmrouteError) else None
    is_asked = bool(getattr(arguments, "engine", None))  # then the version may be a server's
    return reason == Reason.INVALID_ENGINE_SETTING or (
        reason == Reason.UNKNOWN_BACKEND and not is_asked
    )


def _parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of one command, because the modules of all take longer to import than most run."""
    parser = _Parser(
        prog="mmroute",
        description="The token IDs that an inference engine will hold for a request with text, "
        "images, videos or audio, and the block hashes that it will publish, from the text and the "
        "headers of the files.",
    )
    version = importlib.metadata.version("mmroute")
    parser.add_argument("--version", action="version", version=f"mmroute {version}")
    parser.add_argument(
        "--print-completion",
        choices=("bash", "zsh", "fish"),
        action=PrintCompletion,
        help="print the completion script of this shell",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def show_help(_: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return EXIT_USAGE

    parser.set_defaults(run=show_help, parser=parser)

    for name in [command] if command in _MODULES else _MODULES:
        house = _MODULES[name].partition(".")[0]
        if find_spec(f"mmroute.{house}"):  # the core alone has no other commands
            module = importlib.import_module(f"mmroute.{_MODULES[name]}")
            getattr(module, f"add_{name}")(commands)
    return parser
