"""``mmroute bundle serve`` and ``fetch``: a model's files, from a worker to a router."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
from pathlib import Path
from typing import Final

from mmroute.cli.arguments import Commands, add_command, port, require_extra
from mmroute.cli.output import failed
from mmroute.model_directory import find_model
from mmroute.text.fingerprint import fingerprint

_NEEDED: Final = ("grpc", "google.protobuf")
_SERVE_EPILOG = """\
The files are read once, as an engine does; restart it when they change. `mmroute docs deploy`
has the protocols.

  mmroute bundle serve /models/qwen2.5-vl-3b --host 0.0.0.0 --port 50051
  mmroute bundle serve Qwen/Qwen2.5-VL-3B-Instruct --uds /run/mmroute/bundle.sock

exit status: 0 told to stop (SIGTERM, SIGINT); 1 no files, or nothing to listen on; 2 bad usage
"""
_FETCH_EPILOG = """\
A WORKER is HOST:PORT, grpc://HOST:PORT or unix:PATH: `mmroute bundle serve`, or an engine with
smg's gRPC service.

  mmroute bundle fetch 10.0.0.7:50051 --out /tmp/qwen && mmroute resolve /tmp/qwen

exit status: 0 fetched and checked; 1 not, and nothing is left of it; 2 bad usage
"""


def add_bundle(commands: Commands) -> None:
    """Add the commands."""
    bundle = commands.add_parser("bundle", help="a model's files over gRPC: serve them, fetch them")
    of_bundle = bundle.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serve = add_command(
        of_bundle,
        "serve",
        "offer a model's tokenizer and configuration files to routers",
        _serve,
        epilog=_SERVE_EPILOG,
    )
    serve.add_argument("model", metavar="DIRECTORY", help="model directory, or hub name")
    serve.add_argument("--host", default="127.0.0.1", help="the address (default: %(default)s)")
    serve.add_argument("--port", type=port, default=50051, help="0: any (default: %(default)s)")
    serve.add_argument("--uds", metavar="PATH", help="a Unix socket, in place of host and port")
    fetch = add_command(
        of_bundle,
        "fetch",
        "fetch the tokenizer and configuration files of a worker, and check them",
        _fetch,
        epilog=_FETCH_EPILOG,
    )
    fetch.add_argument("worker", metavar="WORKER", help="the worker's gRPC address")
    fetch.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="the directory to create"
    )
    fetch.add_argument(
        "--timeout", metavar="S", type=float, default=120.0,
        help="the seconds for connecting and streaming together (default: %(default)s)",
    )  # fmt: skip


def _serve(arguments: argparse.Namespace) -> int:
    require_extra("bundle", *_NEEDED)
    from mmroute.server.bundle.files import SOURCE_FILES, files_of  # an extra, and slow to import
    from mmroute.server.bundle.server import serve

    files = files_of(find_model(arguments.model, patterns=SOURCE_FILES))
    digest = fingerprint(files)

    def started(address: str) -> None:
        report = {"address": address, "fingerprint": digest, "files": [*files]}
        text = f"serving {', '.join(files)}\nfingerprint {digest}, on {address}"
        print(json.dumps(report) if arguments.json else text, flush=True)

    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host  # IPv6
    address = f"unix:{arguments.uds}" if arguments.uds else f"{host}:{arguments.port}"
    serve(files, address, started)
    return 0


def _fetch(arguments: argparse.Namespace) -> int:
    require_extra("bundle", *_NEEDED)
    from mmroute.server.bundle.client import fetch_bundle  # an extra

    out: Path = arguments.out
    if out.exists():
        return failed(arguments, f"--out {out} is there already; give a new directory")

    # SIGTERM must raise an exception here, so that the files fetched so far are removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with fetch_bundle(arguments.worker, timeout=arguments.timeout) as bundle:
            _copy(bundle.root, out)
    except ValueError as error:
        return failed(arguments, error)
    finally:
        signal.signal(signal.SIGTERM, before)
    sizes = {name: (out / name).stat().st_size for name in bundle.files}
    report = {
        "worker": bundle.worker,
        "service": bundle.service,
        "directory": str(out),
        "fingerprint": bundle.fingerprint,
        "files": sizes,
    }
    lines = [f"{size:12,} {name}" for name, size in sizes.items()]
    lines.append(f"fingerprint {bundle.fingerprint}, from {bundle.service}, in {out}")
    print(json.dumps(report) if arguments.json else "\n".join(lines))
    return 0


def _copy(root: Path, out: Path) -> None:
    """Copy a directory as a new one: all of its files, or none."""
    try:
        shutil.copytree(root, out)
    except BaseException:
        shutil.rmtree(out)
        raise
