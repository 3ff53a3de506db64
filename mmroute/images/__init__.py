"""Images as a client sends them: their size, from as few bytes as possible."""

from mmroute.images.reading import read_image, read_image_size

__all__ = ["read_image", "read_image_size"]
