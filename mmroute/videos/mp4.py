"""MP4, MOV, M4V and 3GP: frame count, rate and size from the ``moov`` box.

Source: ISO/IEC 14496-12 (boxes); vLLM ``multimodal/video_decoders/opencv.py``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import BinaryIO, Final

import numpy as np

from mmroute.errors import InexactError
from mmroute.requests.items import VideoSize
from mmroute.videos.boxes import Box, Integers
from mmroute.videos.end_of_file import frames_at_end, frames_wherever_sought
from mmroute.videos.fragments import (
    ends_of_indexes,
    first_fragments,
    read_fragments,
)
from mmroute.videos.header import not_predictable
from mmroute.videos.layout import Layout, read_layout
from mmroute.videos.parameter_sets import (
    CUT_WITHIN_A_FRAME,
    has_whole_units,
    held_at_cut,
    pictures_of,
    shows_cut_jpeg,
    shows_cut_mpeg4,
)
from mmroute.videos.rationals import INT_MAX, reduced, rescaled
from mmroute.videos.samples import (
    Edit,
    Samples,
    delay_of,
    first_lost,
    most_frames,
    read_edits,
    read_samples,
    shown_after,
)
from mmroute.videos.tracks import handler, is_turned, movie_time_scale, time_scale, track_id

FIRST_BOXES: Final = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide"})
"""The boxes with which a file may begin."""

_MAX_SAMPLES: Final = 10_000_000
_MAX_PACKETS: Final = 4000  # OpenCV looks at 4,096 packets for the next frame
_MAX_DELAY: Final = 40  # a decoder holds back so many frames, for its threads and for reordering
_PCM_PACKET: Final = 1024  # samples
_MAX_SPANS: Final = 1000  # of all tracks together
_MICROSECONDS: Final = 1_000_000
_MAX_DELTA: Final = 1 << 31  # FFmpeg reads larger deltas as corrections
_HEVC: Final = frozenset({b"hvc1", b"hev1"})
_STRICT_CODECS: Final = _HEVC | {b"avc1", b"avc3"}
_SHOWN_CUT: Final = {b"mp4v": shows_cut_mpeg4, b"jpeg": shows_cut_jpeg}
_CODECS: Final = _STRICT_CODECS | {b"vp09", b"mp4v", b"jpeg"}
_INTERLEAVED: Final = 0.5  # seconds; FFmpeg reads in the order of the file within one second


def read_mp4(file: BinaryIO, size: int) -> VideoSize:
    """The header of the one video track."""
    layout = read_layout(file, size)
    tracks = layout.movie.all(b"trak")
    if _has_cover(layout.movie):
        raise not_predictable("it has cover art, which is a video track as well")
    videos = [track for track in tracks if handler(track) == b"vide"]
    if len(videos) != 1:
        raise not_predictable(f"{len(videos)} video tracks")
    others = [track for track in tracks if track is not videos[0]]
    for track in tracks:  # FFmpeg opens no file with a track that is broken in these boxes
        media = track.only(b"mdia", b"minf")
        media.only(b"stbl", b"stsd").within(skip=8)
        for references in (box for data in media.all(b"dinf") for box in data.all(b"dref")):
            if sum(map(len, references.within(skip=8).values())) != references.unpack("I", 4)[0]:
                raise not_predictable("a track whose references to data are broken")
    if layout.movie.only(b"mvhd").start > tracks[0].start:
        raise not_predictable("its tracks come before the header of the movie")
    header = _read_track(file, videos[0], others, layout)
    if layout.fragments:
        _check_few_packets(others, layout)
    _check_interleaving(videos[0], others)
    return header


def _read_track(file: BinaryIO, track: Box, others: list[Box], layout: Layout) -> VideoSize:
    tables = track.only(b"mdia", b"minf", b"stbl")
    width, height = _size(tables.only(b"stsd"))
    if is_turned(track.only(b"tkhd")):
        width, height = height, width
    scale, movie_scale = time_scale(track), movie_time_scale(layout.movie.only(b"mvhd"))
    edits = read_edits(track)
    samples, claimed = _samples(tables, track, edits, layout)
    opened = first_fragments(layout)
    rated = samples if opened is layout else _samples(tables, track, edits, opened)[0]
    fps = _rate(rated, scale)
    samples, held = _before_cut(file, samples, track, others, layout.cut_at)
    samples.check(layout.media)
    _check_first_frame(file, samples, tables)
    shown = samples.shown if layout.fragments else shown_after(samples, edits, movie_scale, scale)
    total, visible = len(samples.shown), len(shown)
    starts = [edit.start for edit in edits if edit.start >= 0]
    if not visible:
        raise not_predictable(f"the edit list hides {total} of {total} frames")
    if held:
        if visible != total:
            raise not_predictable(CUT_WITHIN_A_FRAME)
        # OpenCV gets an error in place of a frame, and then those that the decoder held back.
        unreadable, lost = claimed - total - 1, total - held
        return VideoSize(width, height, claimed, fps, unreadable=unreadable, lost=lost)
    # Programs that write fragments stretch the first or last frame alone.
    differing = samples.durations != np.median(samples.durations)
    varies = bool(differing.any())
    plain = claimed == total == visible
    if plain and not varies:
        return VideoSize(width, height, total, fps)
    often = differing.sum() > 1
    if often and layout.fragments and (np.diff(shown) <= 0).any():
        raise not_predictable("its rate varies, and it has frames out of order")
    if varies or visible != total:
        _check_decoder(tables, samples)
    if not plain or layout.fragments:
        seconds = (np.sort(shown) - shown.min()) / scale
        claims = {claimed} if claimed else _claims([track, *others], layout, fps)
        begins = _begins(samples, [] if layout.fragments else starts, visible)
        num_frames = frames_wherever_sought(seconds, fps, claims, begins)
        return VideoSize(width, height, num_frames, fps, unreadable=max(num_frames - visible, 0))
    start = int(samples.shown[0])
    if starts not in ([], [start]):
        raise not_predictable("its rate varies, and an edit list changes when it begins")
    num_frames = frames_at_end(samples, scale, fps, start=0 if starts else start)
    return VideoSize(width, height, num_frames, fps)


def _check_first_frame(file: BinaryIO, samples: Samples, tables: Box) -> None:
    """Check that the first frame of H.264 or HEVC is where its tables say."""
    if not set(tables.only(b"stsd").within(skip=8)) & _STRICT_CODECS:
        return
    file.seek(int(samples.starts[0]))
    if not has_whole_units(file.read(int(samples.ends[0] - samples.starts[0]))):
        raise not_predictable("its first frame is not where its tables say, or is broken")


def _begins(samples: Samples, starts: list[int], visible: int) -> Integers | None:
    """The frames shown first behind each key frame, as numbers of visible frames; None for any."""
    if len(starts) > 1 or samples.has_leading_frames():
        return None
    hidden = int((samples.shown < starts[0]).sum()) if starts else 0
    order = np.sort(samples.shown).searchsorted(samples.shown[samples.keys])
    return np.clip(order - hidden, 0, visible - 1)


def _before_cut(
    file: BinaryIO, samples: Samples, track: Box, others: list[Box], cut_at: int | None
) -> tuple[Samples, int]:
    """The frames that are whole, and how many a decoder holds back where the file is cut.

    A decoder of H.264 or HEVC refuses a frame that is cut. Those of JPEG and MPEG-4 make a picture
    of it. That of VP9 may, which depends on the content.
    """
    if cut_at is None:
        return samples, 0
    whole, held = samples.before(cut_at), 0
    total = len(whole.durations)
    if total == len(samples.durations):
        raise not_predictable("it is cut behind its last frame")
    if samples.starts[total] < cut_at:
        entries = track.only(b"mdia", b"minf", b"stbl", b"stsd").within(skip=8)
        ((codec, (entry, *_)),) = entries.items()
        file.seek(samples.starts[total])
        part = file.read(cut_at - int(samples.starts[total]))
        if codec in _SHOWN_CUT:
            if _SHOWN_CUT[codec](part):
                ends = samples.ends.copy()
                ends[total] = cut_at
                whole = replace(samples, ends=ends).before(cut_at)
        elif codec in _STRICT_CODECS:
            held = _held(whole, codec, entry, part)
        else:
            raise not_predictable(CUT_WITHIN_A_FRAME)
    if not len(whole.durations):
        raise not_predictable("it is cut before the end of its first frame")
    last = whole.decoded[-1] / time_scale(track)
    for other in others:
        lost = first_lost(other.only(b"mdia", b"minf", b"stbl"), cut_at)
        if lost is not None and lost / time_scale(other) < last - _INTERLEAVED:
            raise not_predictable("it is cut, and its sound is behind its picture")
    return whole, held


def _held(whole: Samples, codec: bytes, entry: Box, part: bytes) -> int:
    """How many of the whole frames the decoder holds back when it comes to the one that is cut."""
    held = held_at_cut(entry, part)
    if not held:
        if held is None and (whole.shown != whole.decoded).any():
            raise not_predictable(CUT_WITHIN_A_FRAME)
        return 0
    # At a key frame a decoder of HEVC gives back all, and that of H.264 one.
    key = max(whole.keys, default=0) if codec in _HEVC else 0
    if len(whole.durations) <= held + key:
        raise not_predictable(CUT_WITHIN_A_FRAME)
    return held


def _samples(tables: Box, track: Box, edits: list[Edit], layout: Layout) -> tuple[Samples, int]:
    """All frames, and the number of those that ``moov`` describes."""
    samples = read_samples(tables, layout.media_size, most_frames(layout.media_size))
    claimed = len(samples.durations)
    if not layout.fragments:
        return samples, claimed
    if layout.cut_at is not None:
        raise not_predictable("it is cut within a fragment")
    if claimed and any(edit.start > 0 for edit in edits):
        raise not_predictable("it has an edit list, and fragments behind its first frames")
    return with_fragments(samples, track, layout), claimed


def _check_decoder(tables: Box, samples: Samples) -> None:
    if b"mp4v" in tables.only(b"stsd").within(skip=8) and (samples.shown != samples.decoded).any():
        raise not_predictable("its decoder may lose frames out of order")


def with_fragments(described: Samples, track: Box, layout: Layout) -> Samples:
    """The samples that ``moov`` describes, and those in fragments behind them."""
    after = int(described.durations.sum())
    fragments = read_fragments(layout, track_id(track), after=after)
    return described if fragments is None else described.followed_by(fragments)


def _rate(samples: Samples, scale: int) -> float:
    """The average number of frames per second."""
    total, duration = len(samples.durations), int(samples.durations.sum())
    if not (0 < total <= _MAX_SAMPLES and duration):
        raise not_predictable(f"{total} frames that last {duration} units")
    if samples.durations.max() >= _MAX_DELTA:
        raise not_predictable("a frame of negative length")
    numerator, denominator = reduced(scale * total, duration, INT_MAX)
    if not numerator or not denominator:
        raise not_predictable(f"{total} frames that last {duration} units of 1/{scale} s")
    return numerator / denominator


def _claims(tracks: list[Box], layout: Layout, fps: float) -> set[int]:
    """The numbers of frames that OpenCV may compute from the length of a fragmented file.

    The length is that of the longest track, or the time from the first start to the last end. It
    may depend on whether the first samples of a track of sound are heard, and on whether FFmpeg
    reads the fragment behind an index when it opens the file.

    Source: FFmpeg 8 ``libavformat/demux.c`` (`update_stream_timings`).
    """
    movie_scale = movie_time_scale(layout.movie.only(b"mvhd"))
    all_opened = first_fragments(layout) is layout
    index_ends = ends_of_indexes(layout)
    spans: list[set[tuple[float, int]]] = []  # for each track: starts and lengths
    for track in tracks:
        scale = time_scale(track)
        fragments = read_fragments(layout, track_id(track), after=0)
        if fragments is None:
            continue
        edits = read_edits(track)
        start = int(fragments.shown.min()) + rescaled(delay_of(edits), scale, movie_scale)
        skipped = sum(edit.start for edit in edits if edit.start > 0)
        ends = {int(fragments.decoded[-1] + fragments.durations[-1])}
        starts = {start - skipped}
        if not all_opened:
            starts.add(0)  # FFmpeg does not always know the start by then
        if track is not tracks[0]:
            starts.add(start)
        if (index_end := index_ends.get(track_id(track))) is not None:
            ends |= {index_end, max(index_end, *ends)}
        spans.append(
            {
                (start * _MICROSECONDS / scale, rescaled(end, _MICROSECONDS, scale))
                for start in starts
                for end in ends
            }
        )
    if math.prod(map(len, spans)) > _MAX_SPANS:
        raise not_predictable("the lengths of its tracks are not certain")
    claims = set()
    for found in product(*spans):
        last = max(start + length for start, length in found)
        longest = max(*(length for _, length in found), last - min(start for start, _ in found))
        claims.add(int(round(longest) / _MICROSECONDS * fps + 0.5))
    return claims


def _has_cover(movie: Box) -> bool:
    metas = [
        *movie.all(b"meta"),
        *(box for user in movie.all(b"udta") for box in user.all(b"meta")),
    ]
    for meta in metas:
        # The box has its children at once in QuickTime, and after version and flags in MPEG-4.
        skip = 0 if meta.data[meta.start + 4 : meta.start + 8] == b"hdlr" else 4
        if any(items.all(b"covr") for items in meta.within(skip).get(b"ilst", ())):
            return True
    return False


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
    if _coded_sizes(entry) - {(width, height)}:
        raise not_predictable(f"a size of {width}x{height}, and another in its parameter sets")
    return width, height


def _coded_sizes(entry: Box) -> set[tuple[int, int]]:
    try:
        return {(pictures.width, pictures.height) for pictures in pictures_of(entry)}
    except InexactError:  # a set that is not read
        return set()


def _check_interleaving(video: Box, others: list[Box]) -> None:
    """Check that OpenCV finds every frame among the packets of the other tracks.

    OpenCV gives up after 4,096 packets without a frame, so it loses a frame if sound goes on for
    long without a picture. Packets are read in the order of their times.
    """
    packets = [_packets(track) for track in others]
    if sum(packets) <= _MAX_PACKETS:
        return
    delay = delay_of(read_edits(video))
    length = _seconds(video)
    step = int(_times(video)[:, 1].max(initial=0)) / time_scale(video)
    between = 0.0
    for count, track in zip(packets, others, strict=True):
        seconds = _seconds(track)
        gap = max(seconds - length, 0) + _MAX_DELAY * step
        between += count * min(1, gap / seconds) if seconds and not delay else count
    if between > _MAX_PACKETS:
        raise not_predictable("other tracks have too many packets between its frames")


def _check_few_packets(others: list[Box], layout: Layout) -> None:
    found = [read_fragments(layout, track_id(track), after=0) for track in others]
    if sum(len(samples.shown) for samples in found if samples) > _MAX_PACKETS:
        raise not_predictable("other tracks have too many packets between its frames")


def _packets(track: Box) -> int:
    """The most packets that FFmpeg reads from a track."""
    tables = track.only(b"mdia", b"minf", b"stbl")
    constant, count = tables.only(b"stsz").unpack("II", 4)
    times = _times(track)
    if constant and len(times) == 1 and times[0, 1] == 1:
        chunks = [box.unpack("I", 4)[0] for n in (b"stco", b"co64") for box in tables.all(n)]
        return count // _PCM_PACKET + sum(chunks)
    return count


def _times(track: Box) -> Integers:
    """Runs of samples at equal distances, as (number of samples, distance): shape (runs, 2)."""
    return track.only(b"mdia", b"minf", b"stbl", b"stts").table(2)


def _seconds(track: Box) -> float:
    times = _times(track)
    return float(times[:, 0] @ times[:, 1]) / time_scale(track)
