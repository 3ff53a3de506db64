"""Arguments and output that several commands share."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from mmroute.engines.known import find_engine
from mmroute.engines.running import RunningEngine
from mmroute.engines.settings import EngineSettings
from mmroute.errors import MmrouteError, ModelError, Reason
from mmroute.net.links import ImageLinks
from mmroute.normalizer import Normalizer
from mmroute.reuse.fast_paths import EncoderChoice

DEFAULT_BACKEND: Final = "vllm"
EVENT_ENDPOINTS: Final = ("tcp://", "ipc://")
EXIT_FAILURE = 1
EXIT_USAGE = 2
_HIGHEST_PORT: Final = 65535
_NARROWEST_COLUMN: Final = 20
_PROGRESS_EVERY: Final = 0.5  # seconds
_T = TypeVar("_T")

MODEL_HELP = (
    "model directory, hub name (only configuration and tokenizer files are fetched), or "
    "pixtral-12b-2409, which needs no download"
)
_JSON_HELP = "machine-readable output, nothing cut; answers to requests are JSON in any case"


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


def model_arguments(
    parser: argparse.ArgumentParser, *, several: bool = False, asks: bool = True
) -> None:
    """Add MODEL, and the options of its engine."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    engine_arguments(parser, several=several, asks=asks)


def engine_arguments(
    parser: argparse.ArgumentParser, *, several: bool = False, asks: bool = True
) -> None:
    """Add the options for the model's engine and its settings.

    Args:
        parser: the parser of a command.
        several: whether there may be several engines.
        asks: whether a running engine can be asked for its settings.
    """
    backends = "; repeatable: each line is answered for every one, by its name" if several else ""
    parser.add_argument(
        "--backend",
        action="append" if several else "store",
        default=None if several else DEFAULT_BACKEND,
        help=f"engine to match, such as vllm==0.28 (default: {DEFAULT_BACKEND}){backends}",
    )
    parser.add_argument(
        "--model-id",
        metavar="NAME",
        help="the engine's model string, which its image identities cover (default: that of "
        "--engine-args, else MODEL)",
    )
    parser.add_argument("--revision", help="hub branch, tag or commit")
    parser.add_argument(
        "--engine-args",
        metavar="ARGS",
        default="",
        help="the engine's own command line or a part of it, in one argument, such as "
        "'vllm serve NAME --max-num-batched-tokens 8192'; variables in front of it count",
    )
    parser.add_argument(
        "--engine-config",
        metavar="FILE",
        help="the engine's configuration file (vllm serve --config); --engine-args take precedence",
    )
    if not asks:
        return
    parser.add_argument(
        "--engine",
        metavar="URL",
        help="ask this running vLLM for its options, and adopt them; --engine-args take precedence",
    )
    parser.add_argument("--api-key", help="the API key of the server that is asked")


def adopt_engine(arguments: argparse.Namespace) -> None:
    """Adopt the settings of a running engine, below those of the arguments.

    Raises:
        InexactError: as `ask_running`.
        ModelError: as `ask_running` and `adopted_backend`.
    """
    running, arguments.engine_args = ask_running(
        arguments.engine, arguments.api_key, arguments.engine_args, arguments.engine_config
    )
    backends = arguments.backend
    if isinstance(backends, list):
        arguments.backend = [adopted_backend(running, name) for name in backends]
    else:
        arguments.backend = adopted_backend(running, backends or DEFAULT_BACKEND)


def adopted_backend(running: RunningEngine, backend: str) -> str:
    """The backend to match if an engine runs and `backend` was given.

    The default is replaced by the version that runs. Another value stays, and a line on standard
    error says if it differs from the version that runs.

    Raises:
        ModelError: `unknown_backend` if `backend` is the default and the version that runs is not
            known.
    """
    if backend != DEFAULT_BACKEND:
        warning = running.warning(find_engine(backend))
        if warning:
            say(f"warning: {warning}")
        return backend
    if running.profile is None:
        raise ModelError(
            Reason.UNKNOWN_BACKEND,
            f"{running}. To be answered by the rules of another version all the same, name it: "
            f"--backend {find_engine(DEFAULT_BACKEND).backend}",
        )
    return running.backend


def ask_running(
    url: str, api_key: str | None, engine_args: str, config: str | None
) -> tuple[RunningEngine, str]:
    """Ask an engine for its version and options; report those adopted and those not known.

    Args:
        url: the address of the engine.
        api_key: the engine's API key; None for no key.
        engine_args: a command line, which takes precedence over the engine's answers.
        config: the path of the engine's configuration file; None for no file.

    Returns:
        The engine, and its command line as far as it is known.

    Raises:
        InexactError: `remote_unavailable`.
        ModelError: `invalid_engine_setting` if `url` is not a URL; as `parse_command`.
    """
    from mmroute.engines.vllm.serve_command import joined, parse_command
    from mmroute.engines.vllm.serve_settings import DECIDING
    from mmroute.net.remote import Remote
    from mmroute.net.transport import Transport  # loads httpcore
    from mmroute.remote.server_info import ask_engine, ask_options

    try:
        remote = Remote(url, api_key)
    except ValueError as error:
        raise ModelError(Reason.INVALID_ENGINE_SETTING, f"--engine: {error}") from error
    with contextlib.closing(Transport(remote)) as transport:
        running = ask_engine(transport)
        say(f"{url} is {running}")
        if running.engine != DEFAULT_BACKEND:  # the options of another engine are not read
            return running, engine_args
        reported = ask_options(transport)
    say(f"adopted from it: {reported.line}")
    command = parse_command(engine_args, config=config)
    known = {*reported.names, *(f"--{name}" for name in command.options), *command.environment}
    say(
        "neither reported by it nor given in --engine-args, so the engine's default is assumed: "
        f"{', '.join(sorted(DECIDING - known))}"
    )
    return running, joined(reported.line, engine_args)


def failed(arguments: argparse.Namespace, error: object, status: int = EXIT_USAGE) -> int:
    """Report an error on stderr, or with ``--json`` as an object on stdout.

    Args:
        arguments: the arguments of the command.
        error: the error, or a text about wrong arguments.
        status: the exit status to return.
    """
    reason = error.reason if isinstance(error, MmrouteError) else "usage"
    if isinstance(error, OSError):
        reason = "os_error"
    if getattr(arguments, "json", False):
        print(json.dumps({"error": {"reason": reason, "message": str(error)}}))
    else:
        say(f"{reason}: {error}" if isinstance(error, MmrouteError) else str(error))
    return status


def engine_settings(arguments: argparse.Namespace) -> EngineSettings:
    """The engine's settings, from the arguments.

    Raises:
        ModelError: as `EngineSettings.from_args`.
    """
    settings = EngineSettings.from_args(arguments.engine_args, config=arguments.engine_config)
    if settings.without_effect:
        listed = ", ".join(settings.without_effect)
        say(f"without effect on token IDs and hashes: {listed}")
    return settings


def load_normalizer(
    arguments: argparse.Namespace, settings: EngineSettings | None = None, **more: Any
) -> Normalizer:
    """Load the model that the arguments name.

    Args:
        arguments: the arguments of `model_arguments`.
        settings: the engine's settings; None for those of the arguments.
        **more: arguments of `Normalizer.from_pretrained`, which replace those from `arguments`.

    Raises:
        ModelError: as `Normalizer.from_pretrained` and `EngineSettings.from_args`.
    """
    options: dict[str, Any] = {
        "backend": arguments.backend,
        "model_id": arguments.model_id,
        "revision": arguments.revision,
        "engine_settings": engine_settings(arguments) if settings is None else settings,
    }
    normalizer: Normalizer = Normalizer.from_pretrained(arguments.model, **options | more)
    return normalizer


def say(what: str) -> None:
    """Write a line to standard error."""
    print(f"mmroute: {what}", file=sys.stderr, flush=True)


def show_progress(text: str) -> None:
    """Replace the last line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def with_progress(
    items: Iterable[_T], what: str, *, total: int | None = None, watched: bool
) -> Iterator[_T]:
    """The items, which are counted on standard error if `watched`.

    Args:
        items: the items.
        what: a noun for them.
        total: the number of items; None if it is not known, and the time left neither.
        watched: whether to count them.
    """
    started = shown_at = time.monotonic()
    count = 0
    for item in items:
        yield item
        count += 1
        now = time.monotonic()
        if watched and now - shown_at > _PROGRESS_EVERY:
            seconds = (now - started) / count * ((total or count) - count)
            left = f" of {total}, {seconds:.0f} s left" if total else ""
            show_progress(f"{count} {what}{left}")
            shown_at = now
    if watched:
        show_progress(f"{count} {what}\n")


def require_extra(extra: str, *modules: str) -> None:
    """Check that an extra is installed.

    Raises:
        ModuleNotFoundError: a module is missing; the message says how to install it.
    """
    try:
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
    except ModuleNotFoundError:  # the package around it is missing
        missing = list(modules)
    if missing:
        listed = ", ".join(missing)
        raise ModuleNotFoundError(f"{listed} not installed: pip install 'mmroute[{extra}]'")


def encoder_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses the encoder of text."""
    parser.add_argument(
        "--encoder",
        choices=[choice.value for choice in EncoderChoice],
        default=EncoderChoice.AUTO.value,
        help="the encoder of text; auto is fastokens if it has the IDs of tokenizers on a check "
        "(default: %(default)s)",
    )


def link_arguments(parser: argparse._ActionsContainer) -> None:
    """Add the options that allow links to be followed."""
    parser.add_argument(
        "--image-host",
        metavar="HOST",
        action="append",
        default=[],
        help="follow links to images on this host (repeatable; *.example.com; * for any public "
        "one); none otherwise",
    )
    parser.add_argument(
        "--image-network",
        metavar="NETWORK",
        action="append",
        default=[],
        help="connect to private addresses of this network as well, such as 10.1.0.0/16",
    )


def image_links(arguments: argparse.Namespace) -> ImageLinks | None:
    """The permission to follow links; None to follow none.

    Raises:
        ValueError: a host or network is malformed, or there is a network without a host.
    """
    hosts, networks = tuple(arguments.image_host), tuple(arguments.image_network)
    if networks and not hosts:
        raise ValueError("--image-network has no effect without --image-host")
    return ImageLinks(hosts=hosts, networks=networks) if hosts else None


def port(text: str) -> int:
    """Parse a TCP port for argparse; 0 stands for any free port."""
    if not text.isascii() or not text.isdecimal() or int(text) > _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"must be from 0 to {_HIGHEST_PORT}, found {text!r}")
    return int(text)


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns; the first row is the heading.

    On a terminal the last column is wrapped at the terminal's width.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    terminal = shutil.get_terminal_size((sys.maxsize, 0)).columns
    room = max(terminal - before, _NARROWEST_COLUMN)
    for row in rows:
        fits = len(row[-1]) <= room
        first, *further = [row[-1]] if fits else textwrap.wrap(row[-1], room)
        cells = (cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True))
        print("  ".join((*cells, first)).rstrip())
        for line in further:
            print(" " * before + line)


def output_file(text: str) -> Path:
    """Parse the path of a file to write for argparse, so that a wrong path fails at once."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {path.parent}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a directory")
    return path


def positive(text: str) -> int:
    """Parse a positive number for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, found {text!r}")
    return int(text)
