"""Size, orientation and mode of a picture, from its header: Pillow opens it, nothing decodes it.

Source: vLLM 0.33.0 ``multimodal/media/image.py`` and ``multimodal/image.py``, which use Pillow.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from PIL import ExifTags, Image, UnidentifiedImageError

from mmroute.errors import InexactError, Reason
from mmroute.images.completeness import is_complete, is_complete_jpeg, is_decodable
from mmroute.images.plain_headers import PLAIN_BYTES, plain_jpeg, plain_png
from mmroute.images.png_chunks import (
    CHUNK_HEADER_SIZE,
    PngChunks,
    is_undamaged,
    read_chunks,
    with_late_chunks,
)

# What Pillow thinks of a broken file is told by the answer. As warnings a client could fill the
# log with them, and where warnings are errors they would change the answer.
warnings.filterwarnings("ignore", module=r"PIL\.")
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
"""The formats that are read. The engine knows some more, which nobody sends."""

_SMALL: Final = 1 << 16
_MAX_READS: Final = 20_000
_JPEG: Final = b"\xff\xd8\xff"
_TRANSPOSED: Final = frozenset({5, 6, 7, 8})
_ALPHA_MODES: Final = frozenset({"RGBA", "LA", "PA"})
# Entries of a PNG file's description that a note of the same name overwrites with text.
_NO_TEXT: Final = ("bbox", "interlace", "transparency")
_ORIENTATION_KEYS: Final = ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp")


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What a file's header says of its picture.

    Attributes:
        stored: width and height in pixels as the header has them.
        unturned: as an engine decodes them that applies no orientation. Only those of a TIFF
            picture can be others than `stored`: Pillow turns it while it decodes.
        upright: width and height as they are shown, after any orientation was applied.
        converted: whether the engine has to convert the picture to RGB, which it tells apart
            when it names the image.
        mode: as Pillow calls it: ``RGB``, ``RGBA``, ``P`` and so on.
    """

    stored: tuple[int, int]
    unturned: tuple[int, int]
    upright: tuple[int, int]
    converted: bool
    mode: str


def read_header(file: BinaryIO, *, complete: bool) -> ImageHeader:
    """Read the header of a picture.

    Args:
        file: seekable, at any position.
        complete: whether to check that no data of the picture is missing as well. Damage
            inside compressed data shows only to a decoder, and is not looked for.

    Raises:
        InexactError: `image_unreadable` if the engine cannot read it; `image_refused` if it
            claims more pixels than the engine decodes.
    """
    try:
        return _read(file, complete=complete)
    except (InexactError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        raise InexactError(Reason.IMAGE_REFUSED, str(error)) from error
    except UnidentifiedImageError as error:
        raise _unreadable(f"it is none of {', '.join(FORMATS)}, or its header is broken") from error
    # Whatever a broken file makes the reader raise, the engine refuses it for the same.
    except Exception as error:
        raise _unreadable(f"its header is broken ({type(error).__name__}: {error})") from error


def _read(file: BinaryIO, *, complete: bool) -> ImageHeader:
    size = file.seek(0, io.SEEK_END)
    plain = _read_plain(file, size, complete=complete)
    if plain is not None:
        return plain
    image = _open(file, size)
    chunks = None
    if image.format == "PNG":
        animated = getattr(image, "n_frames", 1) > 1
        chunks = read_chunks(file, _picture_start(image), size, animated=animated)
    described = image if chunks is None else _with_late_chunks(file, image, chunks)
    transparent = image.mode in _ALPHA_MODES or "transparency" in described.info
    turned = _is_turned(described)
    if chunks is None:
        whole = not complete or is_complete(file, image, size)
    else:
        whole = chunks.picture_complete
        if transparent and turned and not (chunks.readable and is_undamaged(file, chunks)):
            # The engine turns a picture it fails to read at a second attempt; but where it has put
            # the picture on a background in between, the orientation is forgotten.
            raise _unreadable("it is damaged, and neither upright nor opaque")
    if complete and not is_decodable(image):
        raise _unreadable(f"its first frame is empty, or its mode {image.mode} is not converted")
    if complete and not whole:
        raise _unreadable("it ends before its picture does, or its parts are out of order")
    width, height = image.size
    upright = (height, width) if turned else (width, height)
    return ImageHeader(
        # Pillow turns a TIFF picture while it reads it, whatever the engine does afterwards.
        unturned=upright if image.format == "TIFF" else (width, height),
        stored=(width, height),
        upright=upright,
        converted=image.mode != "RGB" or transparent,
        mode=image.mode,
    )


def _read_plain(file: BinaryIO, size: int, *, complete: bool) -> ImageHeader | None:
    """The header of a file that is read without Pillow; None where Pillow has to be asked."""
    file.seek(0)
    beginning = file.read(PLAIN_BYTES)
    if (found := plain_jpeg(beginning)) is not None:
        several_scans = found.several_scans
        if complete and not is_complete_jpeg(
            file, found.picture, size, several_scans=several_scans
        ):
            return None
    elif (found := plain_png(beginning)) is not None:
        chunks = read_chunks(file, found.picture, size, animated=False)
        if chunks.late_chunks or not chunks.picture_complete:
            return None
    else:
        return None
    stored = (found.width, found.height)
    mode = "RGBA" if found.transparent else "RGB"
    return ImageHeader(stored, stored, stored, converted=found.transparent, mode=mode)


class _FewReads:
    """A file that allows a limited number of reads.

    Pillow takes a header apart in Python, a few bytes at a time, and a hostile header has
    millions of parts.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = _MAX_READS
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise _unreadable("its header has more parts than any encoder writes")
        return self._file.read(size)


def _open(file: BinaryIO, size: int) -> Image.Image:
    """Open a picture; the caller closes the file."""
    file.seek(0)
    if size <= _SMALL:
        return Image.open(file, formats=FORMATS)
    # A beginning of a JPEG file that holds its header reads like all of it, so that mostly
    # nothing has to be counted.
    beginning = file.read(_SMALL)
    if beginning.startswith(_JPEG):
        with contextlib.suppress(Exception):
            return Image.open(io.BytesIO(beginning), formats=("JPEG",))
    few: Any = _FewReads(file)
    return Image.open(few, formats=FORMATS)


def _is_turned(image: Image.Image) -> bool:
    """What Pillow 13.0 `ImageOps.exif_transpose` does, and whether it comes to its end."""
    if ExifTags.Base.Orientation in getattr(image, "tag_v2", ()):
        return False  # Pillow gives the size of such a TIFF file as it is shown
    if not any(key in image.info for key in _ORIENTATION_KEYS):
        return False
    with contextlib.suppress(Exception):  # the engine ignores what makes it fail
        # Pillow's own getexif of PNG files decodes the picture first.
        exif = Image.Image.getexif(image)
        if exif.get(ExifTags.Base.Orientation, 1) not in _TRANSPOSED:
            return False
        del exif[ExifTags.Base.Orientation]
        if "exif" in image.info or "Raw profile type exif" in image.info:
            exif.tobytes()  # EXIF data that cannot be written again stops it
        return True
    return False


def _with_late_chunks(file: BinaryIO, image: Image.Image, chunks: PngChunks) -> Image.Image:
    described = image
    if chunks.late_chunks:
        file.seek(0)
        head = file.read(_picture_start(image) - CHUNK_HEADER_SIZE)
        described = Image.open(
            io.BytesIO(with_late_chunks(head, chunks.late_chunks)), formats=("PNG",)
        )
    if any(isinstance(described.info.get(key), str) for key in _NO_TEXT):
        raise _unreadable(f"it has a note that is named {' or '.join(_NO_TEXT)}")
    return described


def _picture_start(image: Any) -> int:
    start: int = image.tile[0].offset
    return start


def _unreadable(what: str) -> InexactError:
    return InexactError(
        Reason.IMAGE_UNREADABLE, f"an image file is not one that is sure to be read: {what}"
    )
