"""Servers in threads of the tests, and clients of scripted ones."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn
from scripted_server import ScriptedServer
from waiting import until

from mmroute import Remote, connect
from mmroute.server.app import create_app
from mmroute.server.models import Models
from mmroute.server.remote.normalizer import RemoteNormalizer
from mmroute.server.settings import ServerSettings

QWEN: Final = "small-qwen2.5-vl"
PART: Final[dict[str, Any]] = {"type": "image"}
LINK: Final[dict[str, Any]] = {
    "type": "image_url",
    "image_url": {"url": "https://example.com/x.png"},
}


RANGE: Final[dict[str, Any]] = {"offset": 1, "length": 3}


@contextlib.contextmanager
def listening(
    models: Models, settings: ServerSettings | None = None, *, uds: Path | None = None
) -> Iterator[str]:
    """``mmroute serve`` in a thread of this process, its models loaded; its URL."""
    if uds is not None:
        listener, url = socket.socket(socket.AF_UNIX), f"unix://{uds}"
        uds.unlink(missing_ok=True)
        listener.bind(str(uds))
    else:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        create_app(models, settings), loop="asyncio", http="httptools", log_config=None
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    until(lambda: models.ready)
    yield url
    server.should_exit = True
    thread.join(60)
    listener.close()


def connected(server: ScriptedServer, **settings: Any) -> RemoteNormalizer:
    return connect("m", Remote(server.url, **settings))
