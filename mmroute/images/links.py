"""Permission to follow links to images.

A link comes from a client. Following it must not reach what only this machine can reach, wait
longer than was agreed, or read more than was agreed, whatever the server does.
"""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass
from typing import Final

from mmroute.errors import InexactError
from mmroute.images.reading import read_image, read_image_size
from mmroute.request import ImageSize

__all__ = ["ImageLinks"]

_PREFIX_BYTES: Final = 1 << 16
_PNG: Final = b"\x89PNG"


@dataclass(frozen=True, slots=True)
class ImageLinks:
    """Permission to follow links to images.

    Proxies named in the environment are not used; nothing is sent but the request itself.

    Attributes:
        hosts: host names links may lead to, redirects included; ``*.example.com`` stands for
            all hosts below one, ``*`` for any.
        networks: networks with private addresses that may be connected to all the same, such
            as ``10.1.0.0/16``. Any other address must be a public one.
        timeout: seconds for one image, from the name's resolution to the last byte.
        max_bytes: of one image's file.
    """

    hosts: tuple[str, ...]
    networks: tuple[str, ...] = ()
    timeout: float = 5.0
    max_bytes: int = 1 << 26

    def __post_init__(self) -> None:
        """Check the networks.

        Raises:
            ValueError: one of them is none.
        """
        for network in self.networks:
            ipaddress.ip_network(network)

    def fetch_image(self, url: str, *, uuid: str | None = None, upright: bool = True) -> ImageSize:
        """The image behind a link.

        With a uuid the beginning of the file is enough, and no more is asked for; without one
        all of it is read, which its identity covers.

        Args:
            url: of scheme http or https.
            uuid: the client's own name for the image.
            upright: whether the engine applies an orientation stored in the file.

        Raises:
            InexactError: `image_link_refused` if it leads where nothing may be fetched from;
                `image_link_failed` if the server does not answer with a file in time, or with
                too large a one; what `read_image` raises.
        """
        from mmroute.images.fetching import fetch  # noqa: PLC0415 - httpcore is loaded when needed

        deadline = time.monotonic() + self.timeout
        if uuid is not None:
            data, complete = fetch(url, self, deadline, first_bytes=_PREFIX_BYTES)
            size = None if complete else _size_from_prefix(data, upright=upright)
            if size is not None:
                return ImageSize(size.width, size.height, uuid)
            if complete:
                return read_image(data, uuid=uuid, upright=upright)
        data, _ = fetch(url, self, deadline)
        return read_image(data, uuid=uuid, upright=upright)


def _size_from_prefix(data: bytes, *, upright: bool) -> ImageSize | None:
    if data.startswith(_PNG):  # its orientation may stand behind the picture
        return None
    try:
        return read_image_size(data, upright=upright)
    except InexactError:
        return None
