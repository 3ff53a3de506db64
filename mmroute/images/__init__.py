"""The size of an image as a client sends it, read from as few bytes as possible."""

from mmroute.images.reading import read_image, read_image_size

__all__ = ["read_image", "read_image_size"]
