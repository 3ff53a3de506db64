"""The size, orientation and mode of a picture, from its header; the picture is not decoded.

Source: vLLM ``multimodal/media/image.py`` and ``multimodal/image.py``, which use Pillow.
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
from mmroute.images.plain_headers import PLAIN_BYTES, plain_jpeg, plain_png, plain_webp
from mmroute.images.png_chunks import (
    CHUNK_HEADER_SIZE,
    PngChunks,
    bits_of_picture,
    has_few_texts,
    is_undamaged,
    read_chunks,
    with_late_chunks,
)
from mmroute.images.tiff_tags import RAW_PROFILE, exif_of, has_few_values

# The answer says what is wrong with a broken file, so Pillow's warnings are not needed. A client
# could fill the log with them, and where warnings are errors they would change the answer.
warnings.filterwarnings("ignore", module=r"PIL\.")
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
"""The formats that are read. The engine reads a few more, which are rare."""

_SMALL: Final = 1 << 16
_MAX_READS: Final = 10_000
_MAX_EXIF: Final = 1 << 16  # bytes; a JPEG file holds no more in one part
_JPEG: Final = b"\xff\xd8\xff"
_TRANSPOSED: Final = frozenset({5, 6, 7, 8})
_ALPHA_MODES: Final = frozenset({"RGBA", "LA", "PA"})
# Pillow's entries for a PNG file that a text chunk of the same name overwrites.
_NO_TEXT: Final = ("bbox", "interlace", "transparency")
_MOST_EXIF: Final = {"exif": _MAX_EXIF, RAW_PROFILE: 3 * _MAX_EXIF}  # hexadecimal
_ORIENTATION_KEYS: Final = ("exif", RAW_PROFILE, "XML:com.adobe.xmp", "xmp")


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The facts about a picture that a file's header holds."""

    stored: tuple[int, int]  # the width and height in the header, in pixels
    # The width and height for an engine that applies no orientation. They differ from `stored` only
    # for TIFF, which Pillow turns while it decodes.
    unturned: tuple[int, int]
    upright: tuple[int, int]  # the width and height as shown, after any orientation is applied
    # Whether the engine converts the picture to RGB. Its image identity depends on that.
    converted: bool
    mode: str  # the mode of the picture in Pillow's words: `RGB`, `RGBA`, `P` and so on


def read_header(file: BinaryIO) -> ImageHeader:
    """Read the header of a picture, and check that no data of the picture is missing."""
    try:
        return _read(file)
    except (InexactError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        raise InexactError(Reason.IMAGE_REFUSED, str(error)) from error
    except UnidentifiedImageError as error:
        raise _unreadable(f"it is none of {', '.join(FORMATS)}, or its header is broken") from error
    # For a broken file Pillow raises many types. The engine refuses the file for each of them.
    except Exception as error:
        raise _unreadable(f"its header is broken ({type(error).__name__}: {error})") from error


def _read(file: BinaryIO) -> ImageHeader:
    size = file.seek(0, io.SEEK_END)
    plain = _read_plain(file, size)
    if plain is not None:
        return plain
    image = _open(file, size)
    chunks = None
    if image.format == "PNG":
        animated = getattr(image, "n_frames", 1) > 1
        start, bits = _picture_start(image), bits_of_picture(file)
        chunks = read_chunks(file, start, size, num_bits=bits, animated=animated)
    described = image if chunks is None else _with_late_chunks(file, image, chunks)
    transparent = image.mode in _ALPHA_MODES or "transparency" in described.info
    turned = _is_turned(described, size)
    if chunks is None:
        complete_picture = is_complete(file, image, size)
    else:
        complete_picture = chunks.picture_complete
        if transparent and turned and not (chunks.readable and is_undamaged(file, chunks)):
            # If turning the picture fails, the engine turns it at a second attempt. But if it has
            # put the picture on a background in between, the orientation is lost.
            raise _unreadable("it is damaged, and neither upright nor opaque")
    if not is_decodable(image):
        raise _unreadable(f"its first frame is empty, or its mode {image.mode} is not converted")
    if not complete_picture:
        raise _unreadable("it ends before its picture does, or its parts are out of order")
    width, height = image.size
    upright = (height, width) if turned else (width, height)
    return ImageHeader(
        # Pillow turns a TIFF picture while it decodes, whether or not the engine does so later.
        unturned=upright if image.format == "TIFF" else (width, height),
        stored=(width, height),
        upright=upright,
        converted=image.mode != "RGB" or transparent,
        mode=image.mode,
    )


def _read_plain(file: BinaryIO, size: int) -> ImageHeader | None:
    """The header of a plain JPEG, PNG or WebP file; None for a file that Pillow must read."""
    file.seek(0)
    beginning = file.read(PLAIN_BYTES)
    if (header := plain_jpeg(beginning)) is not None:
        several_scans = header.several_scans
        if not is_complete_jpeg(file, header.picture, size, several_scans=several_scans):
            return None
    elif (header := plain_png(beginning)) is not None:
        bits = header.width * header.height * (32 if header.transparent else 24)
        chunks = read_chunks(file, header.picture, size, num_bits=bits, animated=False)
        if chunks.late_chunks or not chunks.picture_complete:
            return None
    elif (header := plain_webp(beginning, size)) is None:
        return None
    stored = (header.width, header.height)
    mode = "RGBA" if header.transparent else "RGB"
    return ImageHeader(stored, stored, stored, converted=header.transparent, mode=mode)


class _FewReads:
    """A file that allows a limited number of reads.

    Pillow parses a header in Python, a few bytes at a time, and a hostile header can have millions
    of parts.
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
    if not has_few_values(file, size):
        raise _unreadable("it has longer lists of numbers than any encoder writes")
    _check_few_texts(file)
    file.seek(0)
    # If the beginning of a JPEG file holds its header, Pillow reads it like the whole file. So
    # reads need not be counted for most files.
    beginning = file.read(_SMALL)
    if beginning.startswith(_JPEG):
        with contextlib.suppress(Exception):
            return Image.open(io.BytesIO(beginning), formats=("JPEG",))
    few: Any = _FewReads(file)
    return Image.open(few, formats=FORMATS)


def _check_few_texts(file: BinaryIO) -> None:
    if not has_few_texts(file, _MAX_READS):
        raise _unreadable("it has more compressed notes than any encoder writes")


def _is_turned(image: Image.Image, size: int) -> bool:
    """Whether Pillow 13.0's `ImageOps.exif_transpose` turns the picture, and does not fail."""
    if ExifTags.Base.Orientation in getattr(image, "tag_v2", ()):
        return False  # for such a TIFF file Pillow's size is already the size as shown
    if not any(key in image.info for key in _ORIENTATION_KEYS):
        return False
    if any(len(image.info.get(key, "")) > most for key, most in _MOST_EXIF.items()):
        raise _unreadable("its EXIF data are longer than those of any camera")
    few = True
    with contextlib.suppress(Exception):  # the engine ignores errors in the orientation
        few = has_few_values(exif_of(image.info), size)
    if not few:
        raise _unreadable("its EXIF data have longer lists of numbers than those of any camera")
    with contextlib.suppress(Exception):
        # Pillow's own getexif of PNG files decodes the picture first.
        exif = Image.Image.getexif(image)
        if exif.get(ExifTags.Base.Orientation, 1) not in _TRANSPOSED:
            return False
        del exif[ExifTags.Base.Orientation]
        if "exif" in image.info or RAW_PROFILE in image.info:
            exif.tobytes()  # exif_transpose fails if it cannot write the EXIF data again
        return True
    return False


def _with_late_chunks(file: BinaryIO, image: Image.Image, chunks: PngChunks) -> Image.Image:
    described = image
    if chunks.late_chunks:
        file.seek(0)
        head = file.read(_picture_start(image) - CHUNK_HEADER_SIZE)
        moved = io.BytesIO(with_late_chunks(head, chunks.late_chunks))
        _check_few_texts(moved)
        moved.seek(0)
        described = Image.open(moved, formats=("PNG",))
    if any(isinstance(described.info.get(key), str) for key in _NO_TEXT):
        raise _unreadable(f"it has a note that is named {' or '.join(_NO_TEXT)}")
    return described


def _picture_start(image: Any) -> int:
    start: int = image.tile[0].offset
    return start


def _unreadable(what: str) -> InexactError:
    return InexactError(
        Reason.IMAGE_UNREADABLE, f"the engine may not be able to read an image file: {what}"
    )
