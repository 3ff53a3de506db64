"""The size of an image as a client sends it, from its file's header."""

from mmroute.images.reading import read_image

__all__ = ["read_image"]
