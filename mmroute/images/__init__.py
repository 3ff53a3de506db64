"""Images as a client sends them: their size, from as few bytes as possible, and their identity."""

from mmroute.engines.vllm.identity import IdentitySource, ImageIdentity
from mmroute.images.reading import read_image, read_image_size
from mmroute.net.links import ImageLinks

__all__ = ["IdentitySource", "ImageIdentity", "ImageLinks", "read_image", "read_image_size"]
