"""``mmroute watch``: the state of the predictions of a running server, as it changes."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import time
from typing import Any

from mmroute.cli.arguments import Commands, add_command
from mmroute.cli.output import EXIT_FAILURE, failed, say
from mmroute.net.remote import Remote

_TICK = 1.0  # seconds


def add_watch(commands: Commands) -> None:
    """Add the command."""
    watch = add_command(
        commands,
        "watch",
        "show whether engines announce what a server (mmroute serve --events) predicted for them",
        _watch,
        epilog="Exit status 1: an engine differs. A line is printed at each change of a state.",
    )
    watch.add_argument("url", metavar="URL", help="the server: http://HOST:PORT")
    watch.add_argument("--api-key", help="the server's API key")
    watch.add_argument(
        "--seconds", metavar="N", type=float, default=float("inf"),
        help="how long to watch (default: until an interrupt)",
    )  # fmt: skip
    watch.add_argument(
        "--validate", metavar="ARGS",
        help="the arguments of `mmroute validate` for the engine, in one argument, such as 'MODEL "
        "--against http://HOST:PORT --events tcp://HOST:PORT'; it runs once when an engine "
        "differs, and proposes an option",
    )  # fmt: skip


def _watch(arguments: argparse.Namespace) -> int:
    from mmroute.cli import main  # which imports this module
    from mmroute.net.transport import Transport  # loads httpcore

    try:
        remote = Remote(arguments.url, arguments.api_key)
    except ValueError as error:
        return failed(arguments, error)
    given = arguments.validate
    try:
        validation = None if given is None else shlex.split(given)
    except ValueError as error:
        return failed(arguments, f"--validate {given}: {error}")
    shown: dict[tuple[str, ...], str] = {}
    is_told = False
    end = time.monotonic() + arguments.seconds
    with contextlib.closing(Transport(remote)) as transport, contextlib.suppress(KeyboardInterrupt):
        while True:
            body = transport.request("GET", "/readyz").body
            found = body.get("predictions") if isinstance(body, dict) else None
            if found is None:
                return failed(arguments, f"{arguments.url} is no mmroute serve: it has no /readyz")
            if not found and not is_told:
                say("no predictions yet: they begin when an engine of --events announces a request")
                is_told = True
            for one in found:
                if _show(arguments, one, shown) and validation is not None:
                    main(["validate", *validation])
            if time.monotonic() >= end:
                break
            time.sleep(min(_TICK, max(0.0, end - time.monotonic())))
    return EXIT_FAILURE if "differs" in shown.values() else 0


def _show(
    arguments: argparse.Namespace, one: dict[str, Any], shown: dict[tuple[str, ...], str]
) -> bool:
    """Print the state of one engine if it has changed. Return whether it has begun to differ."""
    key = one["worker"], one["model"], one["version"]
    if shown.get(key) == one["state"]:
        return False
    shown[key] = one["state"]
    if arguments.json:
        print(json.dumps(one), flush=True)
    else:
        counts = ", ".join(f"{number} {outcome}" for outcome, number in one["requests"].items())
        told = f" ({one['difference']})" if one["difference"] else ""
        print(f"{' '.join(filter(None, key))}: {one['state']}{told}; {counts}", flush=True)
    return bool(one["state"] == "differs")
