"""MP4, MOV, M4V and 3GP: frame count, rate and size from the ``moov`` box.

The frames themselves are not read: top-level boxes are skipped by their sizes, so the cost does not
grow with the file. The rules were compared with OpenCV 5.0's FFmpeg reader.

Source: ISO/IEC 14496-12 (boxes); vLLM ``multimodal/video_decoders/opencv.py``.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Final

import numpy as np

from mmroute.requests.items import VideoSize
from mmroute.videos.boxes import Box, Integers, read_layout
from mmroute.videos.end_of_file import FrameTimes, frames_at_end
from mmroute.videos.header import not_predictable
from mmroute.videos.rationals import INT_MAX, reduced, rescaled

FIRST_BOXES: Final = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide"})
"""The boxes with which a file may begin."""

_MAX_SAMPLES: Final = 10_000_000
_MAX_PACKETS: Final = 4000  # OpenCV looks at 4,096 packets for the next frame
_MAX_DELAY: Final = 40  # a decoder holds back so many frames, for its threads and for reordering
_PCM_PACKET: Final = 1024  # samples
_MAX_DELTA: Final = 1 << 31  # FFmpeg reads larger deltas as corrections
_CODECS: Final = frozenset({b"avc1", b"avc3", b"hvc1", b"hev1", b"vp09", b"mp4v", b"jpeg"})
_ONE: Final = 1 << 16  # 1 in 16.16 fixed point
_FRACTION_BITS: Final = 14  # the last column of a matrix is in 2.30 fixed point
# The first two columns of a display matrix: a, b, c, d.
_KEEPS: Final = frozenset({(_ONE, 0, 0, _ONE), (-_ONE, 0, 0, -_ONE)})
_SWAPS: Final = frozenset({(0, _ONE, -_ONE, 0), (0, -_ONE, _ONE, 0)})


def read_mp4(file: BinaryIO, size: int) -> VideoSize:
    """The header of the one video track.

    Raises:
        InexactError: `video_not_predictable`.
    """
    layout = read_layout(file, size)
    movie = layout.movie
    tracks = movie.all(b"trak")
    if movie.all(b"mvex"):
        raise not_predictable("it is fragmented (a box 'mvex')")
    if _has_cover(movie):
        raise not_predictable("it has cover art, which is a video track as well")
    videos = [track for track in tracks if _handler(track) == b"vide"]
    if len(videos) != 1:
        raise not_predictable(f"{len(videos)} video tracks")
    header = _read_track(videos[0], _movie_scale(movie.only(b"mvhd")), layout.media)
    others = [track for track in tracks if track is not videos[0]]
    _check_interleaving(videos[0], others)
    return header


def _read_track(track: Box, movie_scale: int, media: list[tuple[int, int]]) -> VideoSize:
    tables = track.only(b"mdia", b"minf", b"stbl")
    width, height = _size(tables.only(b"stsd"))
    if _turned(track.only(b"tkhd")):
        width, height = height, width
    scale = _time_scale(track)
    times = _times(track)
    counts, deltas = times[:, 0], times[:, 1]
    num_frames = int(counts.sum())
    duration = int(counts @ deltas)
    if not (0 < num_frames <= _MAX_SAMPLES and duration):
        raise not_predictable(f"{num_frames} frames that last {duration} units")
    shortest, longest = int(deltas.min()), int(deltas.max())
    if longest >= _MAX_DELTA:
        raise not_predictable("a frame of negative length")
    _check_samples(tables, num_frames, media)
    numerator, denominator = reduced(scale * num_frames, duration, INT_MAX)
    if not numerator or not denominator:
        raise not_predictable(f"{num_frames} frames that last {duration} units of 1/{scale} s")
    fps = numerator / denominator
    frames = _frame_times(tables, times)
    _, edit = _edit(track)
    visible = num_frames if edit is None else _visible(frames, edit, movie_scale, scale)
    hidden = num_frames - visible
    varies = shortest != longest
    if hidden and (hidden == 1 or not visible or varies):
        raise not_predictable(f"the edit list hides {hidden} of {num_frames} frames")
    if varies:
        start = int(frames.shown[0])
        if edit is not None and edit[1] != start:
            raise not_predictable("its rate varies, and an edit list changes when it begins")
        if b"mp4v" in tables.only(b"stsd").within(skip=8) and tables.all(b"ctts"):
            raise not_predictable("its rate varies, and its decoder may lose frames out of order")
        visible = frames_at_end(
            frames, _keys(tables), scale, fps, start=start if edit is None else 0
        )
    return VideoSize(width, height, visible, fps)


def _handler(track: Box) -> bytes:
    box = track.only(b"mdia", b"hdlr")
    return struct.pack(">I", *box.unpack("I", 8))


def _has_cover(movie: Box) -> bool:
    metas = [
        *movie.all(b"meta"),
        *(box for user in movie.all(b"udta") for box in user.all(b"meta")),
    ]
    for meta in metas:
        # The box has its children at once in QuickTime, and after version and flags in MPEG-4.
        skip = 0 if meta.moov[meta.start + 4 : meta.start + 8] == b"hdlr" else 4
        if any(items.all(b"covr") for items in meta.within(skip).get(b"ilst", ())):
            return True
    return False


def _movie_scale(header: Box) -> int:
    """The time units per second of edit lists."""
    longer = header.unpack("B")[0] == 1
    if _matrix(header, 48 if longer else 36) != (_ONE, 0, 0, _ONE):
        raise not_predictable("the movie is turned as a whole")
    return _positive(header.unpack("I", 20 if longer else 12)[0])


def _turned(track_header: Box) -> bool:
    """Whether width and height change places when the video is shown."""
    matrix = _matrix(track_header, 52 if track_header.unpack("B")[0] == 1 else 40)
    if matrix not in _KEEPS | _SWAPS:
        raise not_predictable(
            "the picture is mirrored, scaled or turned by less than a right angle"
        )
    return matrix in _SWAPS


def _matrix(box: Box, offset: int) -> tuple[int, ...]:
    a, b, u, c, d, v, _, _, w = box.unpack("9i", offset)
    if (u, v, w) != (0, 0, _ONE << _FRACTION_BITS):
        raise not_predictable("the picture is shown in perspective")
    return a, b, c, d


def _time_scale(track: Box) -> int:
    """The time units per second of a track."""
    media_header = track.only(b"mdia", b"mdhd")
    longer = media_header.unpack("B")[0] == 1
    return _positive(media_header.unpack("I", 20 if longer else 12)[0])


def _positive(scale: int) -> int:
    if not 0 < scale <= INT_MAX:
        raise not_predictable(f"{scale} time units per second")
    return scale


def _size(descriptions: Box) -> tuple[int, int]:
    (count,) = descriptions.unpack("I", 4)
    entries = descriptions.within(skip=8)
    if count != 1 or len(entries) != 1:
        raise not_predictable(f"{count} sample descriptions")
    ((codec, (entry, *_)),) = entries.items()
    if codec not in _CODECS:
        raise not_predictable(f"codec {codec!r}")
    width, height = entry.unpack("HH", 24)
    if not width or not height:
        raise not_predictable(f"a size of {width}x{height}")
    return width, height


def _check_samples(tables: Box, num_frames: int, media: list[tuple[int, int]]) -> None:
    """Check that all tables describe the same samples, and that these are in the file."""
    constant, count = (box := tables.only(b"stsz")).unpack("II", 4)
    if count != num_frames:
        raise not_predictable(f"{count} samples, and times for {num_frames}")
    room = sum(end - start for start, end in media)
    if num_frames > room or constant > room:
        raise not_predictable(f"{num_frames} frames in {room} bytes")
    sizes = np.full(count, constant) if constant else (box.table(1, offset=8)[:, 0])
    wide = bool(tables.all(b"co64"))
    chunks = tables.only(b"co64" if wide else b"stco").table(1, kind="u8" if wide else "u4")[:, 0]
    runs = tables.only(b"stsc").table(3)
    firsts = np.append(runs[:, 0], len(chunks) + 1)
    lengths = firsts[1:] - firsts[:-1]
    if not len(runs) or firsts[0] != 1 or (lengths <= 0).any() or (runs[:, 1:] <= 0).any():
        raise not_predictable("its samples are not in chunks")
    if runs[:, 2].max() != 1 or int(lengths @ runs[:, 1]) != num_frames:
        raise not_predictable(f"its chunks do not hold {num_frames} samples of one kind")
    if sizes.min() <= 0:
        raise not_predictable("it has empty frames")
    per_chunk = np.repeat(runs[:, 1], lengths)
    ends = chunks + np.add.reduceat(sizes, per_chunk.cumsum() - per_chunk)
    inside = np.zeros(len(chunks), np.bool_)
    for start, end in media:
        inside |= (start <= chunks) & (chunks < end) & (ends <= end)
    if not inside.all():
        raise not_predictable("its frames are not in its 'mdat' boxes")
    keys = _keys(tables)
    if keys is not None and (not len(keys) or keys[0]):
        raise not_predictable("its first frame is no key frame")


def _keys(tables: Box) -> Integers | None:
    """The indices of the key frames, from 0; None if all frames are key frames."""
    for box in tables.all(b"stss"):
        return box.table(1)[:, 0] - 1
    return None


def _check_interleaving(video: Box, others: list[Box]) -> None:
    """Check that OpenCV finds every frame among the packets of the other tracks.

    OpenCV gives up after 4,096 packets without a frame, so it loses a frame if sound goes on for
    long without a picture. Packets are read in the order of their times.
    """
    packets = [_packets(track) for track in others]
    if sum(packets) <= _MAX_PACKETS:
        return
    delay, _ = _edit(video)
    length = _seconds(video)
    step = int(_times(video)[:, 1].max()) / _time_scale(video)
    between = 0.0
    for count, track in zip(packets, others, strict=True):
        seconds = _seconds(track)
        gap = max(seconds - length, 0) + _MAX_DELAY * step
        between += count * min(1, gap / seconds) if seconds and not delay else count
    if between > _MAX_PACKETS:
        raise not_predictable("other tracks have too many packets between its frames")


def _packets(track: Box) -> int:
    """The most packets that FFmpeg reads from a track."""
    tables = track.only(b"mdia", b"minf", b"stbl")
    constant, count = tables.only(b"stsz").unpack("II", 4)
    if constant and _times(track)[:, 1].tolist() == [1]:
        chunks = [box.unpack("I", 4)[0] for n in (b"stco", b"co64") for box in tables.all(n)]
        return count // _PCM_PACKET + sum(chunks)
    return count


def _times(track: Box) -> Integers:
    """Runs of samples at equal distances, as (number of samples, distance): shape (runs, 2)."""
    return track.only(b"mdia", b"minf", b"stbl", b"stts").table(2)


def _seconds(track: Box) -> float:
    times = _times(track)
    return float(times[:, 0] @ times[:, 1]) / _time_scale(track)


def _frame_times(tables: Box, times: Integers) -> FrameTimes:
    lengths = np.repeat(times[:, 1], times[:, 0])
    decoded = lengths.cumsum() - lengths
    shown = decoded + _offsets(tables, len(decoded))
    if shown[0] != shown.min():
        raise not_predictable("frames are shown before its first key frame")
    return FrameTimes(decoded, shown)


def _visible(frames: FrameTimes, edit: tuple[int, int], movie_scale: int, scale: int) -> int:
    """The number of frames that an edit shows."""
    duration, start = edit
    end = start + rescaled(duration, scale, movie_scale)
    return int(((start <= frames.shown) & (frames.shown < end)).sum())


def _edit(track: Box) -> tuple[int, tuple[int, int] | None]:
    """The delay, and the length and start of the part that is shown; None if all is shown.

    Delay and length are in the movie's time units, the start is in the track's.
    """
    lists = track.all(b"edts")
    if not lists:
        return 0, None
    if len(lists) > 1:
        raise not_predictable(f"{len(lists)} edit lists")
    box = lists[0].only(b"elst")
    form, row = ("QqI", 20) if box.unpack("B")[0] == 1 else ("IiI", 12)
    (count,) = box.unpack("I", 4)
    edits = [box.unpack(form, 8 + row * number) for number in range(min(count, 3))]
    delay = edits.pop(0)[0] if edits and edits[0][1] == -1 else 0
    if len(edits) > 1:
        raise not_predictable(f"an edit list of {count} entries")
    if not edits:
        return delay, None
    duration, start, rate = edits[0]
    if rate != _ONE or start < 0:
        raise not_predictable("an edit at another rate, or a pause between edits")
    return delay, (duration, start)


def _offsets(tables: Box, num_frames: int) -> Integers | int:
    """Each frame's time from being decoded to being shown: int64, or 0 for all frames."""
    boxes = tables.all(b"ctts")
    if not boxes:
        return 0
    runs = boxes[0].table(2, kind="i4")
    if len(boxes) > 1 or (runs[:, 0] < 0).any() or int(runs[:, 0].sum()) != num_frames:
        raise not_predictable("not one composition offset for each frame")
    return np.repeat(runs[:, 1], runs[:, 0])
