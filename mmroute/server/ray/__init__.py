"""mmroute on a Ray cluster: routing by cached blocks.

It needs the extra `ray`. Importing it does not load Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmroute.lazy import lazily

if TYPE_CHECKING:
    from mmroute.server.ray.router import BlockHashRouter

__all__ = ["BlockHashRouter"]

__getattr__ = lazily(__name__, {"BlockHashRouter": "mmroute.server.ray.router"})
