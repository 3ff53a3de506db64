"""Images as a client sends them: their size, from as few bytes as possible, and their identity."""

from mmroute.images.identity import IdentitySource, ImageIdentity
from mmroute.images.links import ImageLinks
from mmroute.images.reading import read_image, read_image_size

__all__ = ["IdentitySource", "ImageIdentity", "ImageLinks", "read_image", "read_image_size"]
