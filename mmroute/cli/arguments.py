"""Commands, and the arguments that several of them take."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from mmroute.errors import MissingExtraError
from mmroute.net.links import ImageLinks
from mmroute.reuse.fast_paths import EncoderChoice

_HIGHEST_PORT: Final = 65535
_JSON_HELP = (
    "machine-readable output and errors, nothing cut short; answers to requests are JSON in any "
    "case"
)
EVENT_ENDPOINTS: Final = ("tcp://", "ipc://")


class Commands(Protocol):
    """The result of argparse's `add_subparsers`, whose class has no public name."""

    def add_parser(self, *arguments: Any, **options: Any) -> argparse.ArgumentParser:
        """Add a command."""


def add_command(
    commands: Commands,
    name: str,
    help_text: str,
    run: Callable[[argparse.Namespace], int],
    epilog: str | None = None,
) -> argparse.ArgumentParser:
    """Add a command. Its function `run` returns the exit status."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_text,
        description=help_text[0].upper() + help_text[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help=_JSON_HELP)
    parser.set_defaults(run=run, parser=parser)
    return parser


def require_extra(extra: str, *modules: str) -> None:
    """Check that an extra is installed."""
    try:
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
    except ModuleNotFoundError:  # the package around it is missing
        missing = list(modules)
    if missing:
        listed = ", ".join(missing)
        raise MissingExtraError(f"{listed} not installed", extra)


def encoder_argument(parser: argparse._ActionsContainer) -> None:
    """Add the option that chooses the encoder of text."""
    parser.add_argument(
        "--encoder",
        choices=[choice.value for choice in EncoderChoice],
        default=EncoderChoice.AUTO.value,
        help="the encoder of text; auto is fastokens where it gives the IDs of tokenizers for a "
        "set of probe texts, else tokenizers (default: %(default)s)",
    )


def link_arguments(parser: argparse._ActionsContainer) -> None:
    """Add the options that allow links to be followed."""
    parser.add_argument(
        "--image-host",
        metavar="HOST",
        action="append",
        default=[],
        help="follow links to images on this host (repeatable; *.example.com; * for any public "
        "one); without it no link is followed",
    )
    parser.add_argument(
        "--image-network",
        metavar="NETWORK",
        action="append",
        default=[],
        help="connect to private addresses of this network as well, such as 10.1.0.0/16",
    )


def image_links(arguments: argparse.Namespace) -> ImageLinks | None:
    """The permission to follow links; None to follow none."""
    hosts, networks = tuple(arguments.image_host), tuple(arguments.image_network)
    if networks and not hosts:
        raise ValueError("--image-network has no effect without --image-host")
    return ImageLinks(hosts=hosts, networks=networks) if hosts else None


def port(text: str) -> int:
    """Parse a TCP port for argparse; 0 stands for any free port."""
    if not text.isascii() or not text.isdecimal() or int(text) > _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"must be from 0 to {_HIGHEST_PORT}, found {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Parse a positive number for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, found {text!r}")
    return int(text)


def output_file(text: str) -> Path:
    """Parse the path of a file to write for argparse, so that a wrong path fails at once."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {path.parent}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a directory")
    return path
