"""Permission to follow links to images."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from typing import Final

from mmroute.errors import quoted

_HOST: Final = re.compile(r"\*|(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|[0-9a-f:.]*:[0-9a-f:.]*")


@dataclass(frozen=True, slots=True)
class ImageLinks:
    """Permission to follow links to images.

    Proxies named in the environment are not used. No cookies or credentials are sent.

    Attributes:
        hosts: the host names to which links and redirects may lead, without port;
            ``*.example.com`` stands for all hosts below one, ``*`` for any host.
        networks: networks with private addresses to which connections are allowed, such as
            ``10.1.0.0/16``. Any other address must be a public one.
        timeout: the seconds for all images of one request, from the first name's resolution to
            the last byte.
        max_bytes: the limit for the bytes of all images of one request together.
    """

    hosts: tuple[str, ...]
    networks: tuple[str, ...] = ()
    timeout: float = 5.0
    max_bytes: int = 1 << 26

    def __post_init__(self) -> None:
        """Check the values, because a wrong one could open the router's own network to clients."""
        for name in ("hosts", "networks"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(item, str) for item in value):
                raise ValueError(f"{name} must be a tuple of strings, found {quoted(value)}")
        for host in self.hosts:
            if not _HOST.fullmatch(host.lower()):
                raise ValueError(
                    f"hosts has {quoted(host)}; a host is a name without scheme, port or path, "
                    "such as 'images.example.com', '*.example.com' or '*'"
                )
        for network in self.networks:
            ipaddress.ip_network(network)
        limits = (("timeout", self.timeout), ("max_bytes", self.max_bytes))
        for name, limit in limits:
            if isinstance(limit, bool) or not isinstance(limit, int | float):
                raise ValueError(f"{name} must be a number, found {quoted(limit)}")
            if not (math.isfinite(limit) and limit > 0):
                raise ValueError(f"{name} must be positive, found {limit}")
