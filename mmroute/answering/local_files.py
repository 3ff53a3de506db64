"""Reads the files that the links of one request name, on the machine of mmroute.

Source: vLLM ``multimodal/media/connector.py`` (`_load_file_url`); urllib3 2 ``util/url.py``, which
cuts query and fragment off.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from mmroute.errors import InexactError, Reason, invalid, quoted

# The engine puts a host in front of the path, and reads that below its own working directory.
_LINK: Final = re.compile(r"file:(?://(?=/)|(?!//))([^?#]*)", re.IGNORECASE | re.DOTALL)
_MAX_BYTES: Final = 1 << 26  # of all files of one request, which are kept for their identities


class LocalFiles:
    """The files of one request."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._left = _MAX_BYTES

    def read(self, link: str) -> bytes:
        """The bytes of the file that a link names."""
        if not self._directory:
            raise invalid(
                "the engine reads files of file: links only below --allowed-local-media-path, "
                f"which it was started without; found {quoted(link)}"
            )
        try:
            return self._read(link)
        except (OSError, ValueError, RuntimeError) as error:  # a NUL, or links that form a loop
            raise _failed(link, type(error).__name__) from error

    def _read(self, link: str) -> bytes:
        path = _LINK.match(link)
        file = Path("/", unquote(path[1]) if path else "")
        # Resolved before it is compared, so that neither .. nor a symbolic link leads out.
        if Path(self._directory).resolve() not in file.resolve().parents:
            raise InexactError(
                Reason.IMAGE_LINK_REFUSED,
                f"the link {quoted(link)} names no file below --allowed-local-media-path",
            )
        if not file.is_file():  # a pipe would block
            raise _failed(link, "there is no such file on this machine")
        size = file.stat().st_size
        if size > self._left:
            raise _failed(link, f"the files of the request have more than {_MAX_BYTES} bytes")
        self._left -= size
        with file.open("rb") as opened:
            return opened.read(size)


def is_file_link(url: str) -> bool:
    """Whether the engine reads a URL as the name of a file."""
    return url[:5].lower() == "file:"


def _failed(link: str, why: str) -> InexactError:
    return InexactError(
        Reason.IMAGE_LINK_FAILED, f"the file of the link {quoted(link)} was not read: {why}"
    )
