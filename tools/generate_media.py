"""Write small videos and recordings, with what the engine's own readers say of them.

    python tools/generate_media.py

Needs PyAV, OpenCV and soundfile, of which the engine uses the last two. Frames are 16x32 pixels and
few, so that a file is about a kilobyte; every one is written anew, with the same content.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1] / "tests"
SIZE = (32, 16)
ONE = 1 << 16


def video(
    container: str = "mp4",
    codec: str = "libx264",
    frames: int = 6,
    rate: Fraction | int = 30,
    *,
    b_frames: int = 0,
    steps: tuple[int, ...] = (1,),
    start: int = 0,
    sound: float = 0,
    tracks: int = 1,
    movflags: str = "",
    options: Mapping[str, str] | None = None,
    pixels: str = "yuv420p",
    group: int = 12,
) -> bytes:
    import av

    path = Path(tempfile.mkdtemp()) / "file"
    options = {**(options or {}), **({"movflags": movflags} if movflags else {})}
    with av.open(str(path), "w", format=container, options=options) as output:
        pictures = [output.add_stream(codec, rate=Fraction(rate)) for _ in range(tracks)]
        for stream in pictures:
            stream.width, stream.height, stream.pix_fmt = *SIZE, pixels
            if codec.startswith("libx26"):
                stream.options = {"bf": str(b_frames), "preset": "ultrafast", "g": str(group)}
            elif codec == "mpeg4":
                stream.options = {"bf": str(b_frames)}
        audio = (
            output.add_stream("libopus" if container == "webm" else "aac", rate=48000)
            if sound
            else None
        )
        packets = []
        at = start
        for number in range(frames):
            picture = np.full((SIZE[1], SIZE[0], 3), number * 20 % 255, np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=pixels)
            frame.pts, frame.time_base = at, 1 / Fraction(rate)
            at += steps[number % len(steps)]
            for stream in pictures:
                packets += stream.encode(frame)
        for stream in pictures:
            packets += stream.encode(None)
        if audio is not None:
            packets += _silence(audio, sound)
        for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
            output.mux(packet)
    return path.read_bytes()


def _silence(audio: Any, seconds: float) -> list[Any]:
    import av

    packets: list[Any] = []
    resampler = av.AudioResampler(format=audio.codec_context.format.name, layout="mono", rate=48000)
    for at in range(0, int(seconds * 48000), 960):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 960), np.float32), "fltp", "mono")
        frame.rate, frame.pts, frame.time_base = 48000, at, Fraction(1, 48000)
        for ready in resampler.resample(frame):
            packets += audio.encode(ready)
    return [*packets, *audio.encode(None)]


def _gif(delays: list[int]) -> bytes:
    from PIL import Image

    first, *others = [Image.new("L", SIZE, number * 40) for number in range(len(delays))]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=delays, loop=0)
    return file.getvalue()


def _still(kind: str, mode: str = "RGB") -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new(mode, SIZE).save(file, kind)
    return file.getvalue()


def from_second_group(container: str, **kinds: Any) -> bytes:
    """A part of a file, begun where frames come that need those before it."""
    import av

    path = Path(tempfile.mkdtemp()) / "file"
    whole = io.BytesIO(video(codec="libx265", frames=30, group=10, **kinds))
    with av.open(whole) as source, av.open(str(path), "w", format=container) as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        keys = 0
        for packet in source.demux():
            keys += packet.is_keyframe
            if keys > 1 and packet.dts is not None:
                packet.stream = stream
                output.mux(packet)
    return path.read_bytes()


def boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    while start + 8 <= end:
        length, name = struct.unpack_from(">I4s", data, start)
        yield name, start, start + length
        start += length


def find(data: bytes, *path: bytes) -> tuple[int, int]:
    """Where the first box of a path begins and ends, its header included."""
    start, end = 0, len(data)
    for depth, name in enumerate(path):
        start, end = next(
            (s, e) for n, s, e in boxes(data, start + 8 * bool(depth), end) if n == name
        )
    return start, end


def turned(data: bytes, a: int, b: int, c: int, d: int) -> bytes:
    at = find(data, b"moov", b"trak", b"tkhd")[0] + 48
    return data[:at] + struct.pack(">5i", a, b, 0, c, d) + data[at + 20 :]


def edited(data: bytes, *edits: tuple[int, int]) -> bytes:
    """With another edit list (length in milliseconds, start in the track's units); moov last."""
    rows = b"".join(struct.pack(">IiI", length, start, ONE) for length, start in edits)
    table = struct.pack(">I4sII", 16 + len(rows), b"elst", 0, len(edits)) + rows
    new = struct.pack(">I4s", 8 + len(table), b"edts") + table
    start, end = find(data, b"moov", b"trak", b"edts")
    grown = bytearray(data[:start] + new + data[end:])
    for path in ((b"moov",), (b"moov", b"trak")):
        at = find(data, *path)[0]
        length = int.from_bytes(grown[at : at + 4]) + len(new) - (end - start)
        grown[at : at + 4] = length.to_bytes(4)
    return bytes(grown)


def without_rate(webm: bytes) -> bytes:
    """With a void in place of the duration of a frame, as browsers record."""
    return webm.replace(b"\x23\xe3\x83\x84", b"\xec\x20\0\4")


def videos() -> Iterator[tuple[str, bytes]]:
    plain = video()
    b_frames = video(frames=12, b_frames=2)
    yield "plain", plain
    yield "moov-first", video(movflags="faststart")
    yield "one-frame", video(frames=1)
    yield "thousands", video(frames=2500, codec="mpeg4", rate=25)
    yield "b-frames", b_frames
    for rate in ("24000/1001", "30000/1001", "60000/1001", "25/2", "1", "1/3", "1234567/54321"):
        yield f"rate-{rate.replace('/', '-')}", video(rate=Fraction(rate))
    yield "variable", video(steps=(1, 3, 2), frames=9)
    yield "variable-b-frames", video(steps=(1, 3, 2), frames=12, b_frames=2)
    yield "slower", video(frames=60, steps=(*[1] * 50, *[3] * 10))
    yield "slower-b-frames", video(frames=60, b_frames=2, steps=(*[1] * 50, *[3] * 10), group=5)
    yield "pause-b-frames", video(frames=48, b_frames=1, steps=(*[1] * 30, 9), group=12)
    yield "slower-hevc", video(codec="libx265", frames=60, steps=(*[1] * 50, *[3] * 10), group=5)
    yield "slower-mpeg4", video(codec="mpeg4", rate=25, frames=60, steps=(1, 1, 1, 5), b_frames=2)
    yield "faster", video(frames=60, steps=(*[4] * 10, *[1] * 50), group=5)
    yield "pause-before-last", video(frames=30, steps=(*[1] * 28, 40, 1), group=1)
    yield "delayed", video(start=7)
    yield "sound-longer", video(sound=1.0)
    yield "sound-shorter", video(frames=30, sound=0.1)
    yield "sound-much-longer", video(codec="libvpx-vp9", rate=1, sound=200)
    yield "two-videos", video(tracks=2)
    yield "hevc", video(codec="libx265")
    yield "vp9", video(codec="libvpx-vp9")
    yield "av1", video(codec="libsvtav1")
    yield "mov", video("mov")
    yield "mov-mjpeg", video("mov", "mjpeg", pixels="yuvj420p")
    yield "3gp", video("3gp")
    for name, matrix in {
        "90": (0, ONE, -ONE, 0),
        "180": (-ONE, 0, 0, -ONE),
        "270": (0, -ONE, ONE, 0),
        "mirrored": (-ONE, 0, 0, ONE),
        "transposed": (0, ONE, ONE, 0),
        "45": (46341, 46341, -46341, 46341),
    }.items():
        yield f"turned-{name}", turned(plain, *matrix)
    unit = 512  # of a frame
    yield "edit-all", edited(plain, (200, 0))
    yield "edit-delay", edited(plain, (500, -1), (200, 0))
    yield "edit-hides-first", edited(plain, (200, unit))
    yield "edit-hides-two", edited(plain, (200, 2 * unit))
    yield "edit-hides-end", edited(plain, (100, 0))
    yield "edit-hides-both-ends", edited(b_frames, (200, 4 * unit))
    pauses = video(frames=12, b_frames=3, group=100, steps=(1, 1, 1, 5))
    yield "edit-hides-end-of-pauses", edited(pauses, (300, 1024))
    yield "edit-hides-all", edited(plain, (200, 10 * unit))
    yield "edit-twice", edited(plain, (100, 0), (100, 3 * unit))
    yield "edit-pause-behind", edited(plain, (100, 0), (100, -1))
    yield "edit-pauses-alone", edited(plain, (100, -1))
    yield "cut", plain[:-20]
    yield "cut-media", video(movflags="faststart")[:-20]
    yield "bytes-behind", plain + b"\0\1\2\3"
    yield "no-moov", plain[: find(plain, b"moov")[0]]
    yield "no-key-frame-table", plain.replace(b"stss", b"free")


def parts_of_videos() -> Iterator[tuple[str, bytes]]:
    yield "fragmented", video(movflags="frag_keyframe+empty_moov")
    for name, flags in {
        "b-frames": "frag_keyframe+empty_moov",
        "first-in-moov": "frag_keyframe",
        "index": "dash+frag_keyframe",
        "index-of-several": "frag_keyframe+empty_moov+default_base_moof+global_sidx",
        "negative-offsets": "frag_keyframe+empty_moov+negative_cts_offsets",
    }.items():
        yield f"fragmented-{name}", video(frames=15, b_frames=2, group=5, movflags=flags)
    several = "cmaf+global_sidx+frag_keyframe"
    late = video(frames=48, b_frames=2, group=12, sound=1.5, movflags=several)
    yield "fragmented-index-of-several-late", late
    dash = "dash+frag_keyframe"
    yield "fragmented-index-sound", video(frames=15, sound=0.5, group=5, movflags=dash)
    stretched = (3, *[1] * 14)
    yield "fragmented-index-stretched", video(frames=15, steps=stretched, group=5, movflags=dash)
    fragments = "frag_keyframe+empty_moov"
    yield "fragmented-sound", video(movflags=fragments, frames=15, b_frames=2, sound=0.5)
    yield "fragmented-variable", video(movflags=fragments, frames=15, steps=(1, 1, 4), group=5)
    first = video(frames=30, movflags="faststart", group=10)
    yield "cut-in-the-middle", first[: len(first) // 2 + 300]
    yield "cut-b-frames", video(frames=30, b_frames=2, movflags="faststart")[:-200]
    hevc = video(codec="libx265", frames=30, b_frames=3, movflags="faststart")
    yield "cut-b-frames-hevc", hevc[:-90]
    short = video(frames=7, b_frames=2, group=4, movflags="faststart")
    yield "cut-b-frames-behind-a-key-frame", short[:-20]
    yield "cut-b-frames-all-held-back", video(frames=3, b_frames=2, movflags="faststart")[:-20]
    yield "cut-vp9", video(codec="libvpx-vp9", movflags="faststart")[:-3]
    yield "cut-mpeg4", video(codec="mpeg4", rate=25, movflags="faststart")[:-20]
    jpeg = video("mov", "mjpeg", pixels="yuvj420p", movflags="faststart")
    yield "cut-jpeg-in-its-head", jpeg[:-200]
    yield "cut-jpeg", jpeg[: jpeg.rindex(b"\xff\xda") + 20]
    yield "cut-jpeg-where-it-begins", jpeg[: jpeg.rindex(b"\xff\xda") + 9]
    yield "cut-first-mpeg4", video(frames=1, codec="mpeg4", movflags="faststart")[:-20]
    yield "cut-fragment", video(frames=15, movflags="frag_keyframe+empty_moov+skip_trailer")[:-9]


def other_videos() -> Iterator[tuple[str, bytes]]:
    yield "webm-vp9", video("webm", "libvpx-vp9")
    yield "webm-vp8", video("webm", "libvpx", 10, Fraction(30000, 1001))
    yield "webm-sound-longer", video("webm", "libvpx-vp9", sound=1.0)
    yield "webm-sound-a-frame-longer", video("webm", "libvpx-vp9", sound=0.24)
    yield "webm-late", video("webm", "libvpx-vp9", start=7)
    yield "webm-variable", video("webm", "libvpx-vp9", 9, steps=(1, 3, 2))
    yield "webm-cut", video("webm", "libvpx-vp9")[:-9]
    yield "webm-cut-before-its-frames", video("webm", "libvpx-vp9")[:400]
    yield "webm-live", video("webm", "libvpx-vp9", sound=0.2, options={"live": "1"})
    yield "webm-live-cut", video("webm", "libvpx-vp9", options={"live": "1"})[:-9]
    yield "mkv-live", video("matroska", b_frames=2, frames=12, options={"live": "1"})
    whole = video("webm", "libvpx-vp9", 30, group=5)
    yield "webm-cut-in-the-middle", whole[: len(whole) // 2]
    yield "webm-rate-not-given", without_rate(whole)
    for name, steps in (
        ("webm-recorded", (31, 38, 29, 35, 40, 27)),
        ("webm-recorded-with-gaps", (33, 67, 33, 34, 33, 67, 33)),
        ("webm-recorded-slowly", (200, 210)),
    ):
        recorded = video(
            "webm", "libvpx", 45, rate=Fraction(1000), steps=steps, options={"live": "1"}
        )
        yield name, without_rate(recorded)
    yield "mkv-h264", video("matroska", b_frames=2, frames=12)
    yield "mkv-part", from_second_group("matroska", b_frames=3)
    yield "mp4-part", from_second_group("mp4", b_frames=3)
    yield "mkv-two-videos", video("matroska", tracks=2)


def further_videos() -> Iterator[tuple[str, bytes]]:
    yield "avi", video("avi", "mpeg4")
    yield "avi-b-frames", video("avi", frames=12, b_frames=2)
    yield (
        "avi-sound",
        video("avi", "mjpeg", rate=Fraction(30000, 1001), pixels="yuvj420p", sound=0.4),
    )
    yield "avi-empty-frames", video("avi", "mjpeg", frames=9, steps=(1, 3), pixels="yuvj420p")
    yield "avi-empty-frames-of-one-key", video("avi", frames=12, steps=(1, 3), group=300)
    yield "avi-cut", video("avi", "mpeg4")[:-20]
    jpeg = video("avi", "mjpeg", pixels="yuvj420p")
    for name, end in {"": 20, "-in-its-head": -9, "-where-it-begins": 9}.items():
        yield f"avi-cut-jpeg{name}", jpeg[: jpeg.rindex(b"\xff\xda") + end]
    of_jpegs = video("avi", "mjpeg", frames=9, steps=(1, 3), pixels="yuvj420p")
    yield "avi-cut-empty-frames", of_jpegs[: of_jpegs.rindex(b"\xff\xda") + 20]
    yield "avi-cut-first-frame", of_jpegs[: of_jpegs.index(b"\xff\xda") + 20]
    slow = video("avi", "mjpeg", frames=9, rate=3, steps=(1, 3), pixels="yuvj420p")
    yield "avi-cut-empty-frames-slow", slow[: slow.rindex(b"\xff\xda") + 20]
    yield "gif", video("gif", "gif", pixels="rgb8")
    yield "gif-25", video("gif", "gif", rate=25, frames=9, pixels="rgb8")
    for name, frames in {"100": 4, "130": 7, "0": 3}.items():
        yield f"gif-pillow-{name}", _gif([int(name)] * frames)
    yield "gif-delays-differ", _gif([100, 100, 50])
    yield from (("gif-still", _gif([0])), ("gif-bytes-behind", _gif([100, 100]) + b"end"))
    yield "gif-cut", _gif([100, 100])[:-5]
    yield "mkv-mpeg4", video("matroska", "mpeg4")
    yield "mpegts", video("mpegts")
    yield "mpegts-b-frames", video("mpegts", frames=30, b_frames=2)
    yield "mpegts-sound-longer", video("mpegts", frames=22, rate=Fraction(24000, 1001), sound=1)
    yield "mpegts-sound-much-longer", video("mpegts", frames=10, sound=2)
    yield "mpegts-hevc", video("mpegts", "libx265", frames=25, rate=25)
    yield "mpegts-mpeg2", video("mpegts", "mpeg2video", frames=25, rate=25)
    yield "mpegts-variable", video("mpegts", frames=30, steps=(1, 3, 2))
    yield "mpegts-two-frames", video("mpegts", frames=2)
    yield "mpegts-two-videos", video("mpegts", tracks=2)
    yield "mpegts-cut", video("mpegts")[:-100]
    hevc = video("mpegts", "libx265", frames=25, rate=25)
    yield "mpegts-cut-hevc", hevc[: hevc.rindex(b"\0\0\1") // 188 * 188]
    yield "mpegts-sought-in-vain", video("mpegts", frames=30, b_frames=2, sound=1.2, group=300)
    for kind in ("PNG", "JPEG"):
        yield f"still-{kind}", (still := _still(kind))
        yield f"still-{kind}-bytes-behind", still + b"behind"
    yield "still-JPEG-cmyk", _still("JPEG", "CMYK")
    yield "apng", video("apng", "apng", pixels="rgb24")
    yield "empty", b""
    yield "text", b"not a video " * 20


def as_opencv_reads(data: bytes) -> dict[str, Any] | None:
    """As vLLM 0.33.0 asks OpenCV (``video_decoders/opencv.py``); None where it cannot."""
    import cv2
    import cv2.videoio_registry as registry

    backend = registry.getStreamBufferedBackends()[0]
    stream = io.BytesIO(data)  # must outlive the capture
    capture = cv2.VideoCapture(stream, backend, [])
    if not capture.isOpened():
        return None
    frames, fps = int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), capture.get(cv2.CAP_PROP_FPS)
    if frames <= 0:
        demuxer = io.BytesIO(data)
        packets = cv2.VideoCapture(demuxer, backend, [cv2.CAP_PROP_FORMAT, -1])
        frames = sum(1 for _ in iter(packets.grab, False))
        packets.release()
        if not frames:
            return None
    elif capture.set(cv2.CAP_PROP_POS_AVI_RATIO, 1.0):
        seen, ended = int(capture.get(cv2.CAP_PROP_POS_FRAMES)), not capture.grab()
        frames = seen if ended and 0 < seen < frames - 1 else frames
    capture.release()
    stream = io.BytesIO(data)
    capture = cv2.VideoCapture(stream, backend, [])
    width, height = int(capture.get(3)), int(capture.get(4))
    readable = [n for n in range(max(frames, 0)) if capture.grab() and capture.retrieve()[0]]
    capture.release()
    lost = set(range(max(readable, default=0))) - {*readable}
    return {
        "width": width,
        "height": height,
        "num_frames": frames,
        "fps": fps,
        "readable": len(readable),
        **({"lost": sorted(lost)} if lost else {}),
    }


def recordings() -> Iterator[tuple[str, bytes]]:
    import soundfile

    def recording(kind: str, subtype: str, samples: int, rate: int, channels: int = 1) -> bytes:
        wave = np.sin(np.arange(samples * channels).reshape(samples, channels) / 9) / 4
        file = io.BytesIO()
        soundfile.write(file, wave, rate, format=kind, subtype=subtype)
        return file.getvalue()

    wav = recording("WAV", "PCM_16", 333, 16000)
    for subtype in ("PCM_16", "PCM_24", "PCM_32", "PCM_U8", "FLOAT", "DOUBLE", "ULAW", "ALAW"):
        yield f"wav-{subtype}", recording("WAV", subtype, 101, 44100, 2)
    yield "wav-extensible", recording("WAVEX", "PCM_16", 99, 12345)
    yield "wav-adpcm", recording("WAV", "IMA_ADPCM", 500, 8000)
    yield "wav-note", wav[:36] + b"LIST\x05\0\0\0abcde\0" + wav[36:]
    for name, length, rest in (
        ("streamed", b"\xff\xff\xff\xff", wav[44:]),
        ("streamed-half", b"\xff\xff\xff\x7f", wav[44:]),
        ("streamed-note", b"\xdb\xff\xff\xff", wav[44:] + b"LIST\x05\0\0\0abcde\0"),
        ("streamed-nothing", b"\xff\xff\xff\xff", b"\0"),
        ("too-long", struct.pack("<I", 667), wav[44:]),
        ("no-length", bytes(4), wav[44:]),
        ("empty", bytes(4), b""),
        ("part-of-a-frame", struct.pack("<I", 665), wav[44:]),
    ):
        yield f"wav-{name}", wav[:40] + length + rest
    yield "wav-twice", wav[:40] + struct.pack("<I", 600) + wav[44:644] + wav[36:]
    yield "wav-twice-cut", wav + b"data"
    yield "wav-cut", wav[:-7]
    yield "wav-rf64", recording("RF64", "PCM_16", 333, 16000)
    flac = recording("FLAC", "PCM_16", 9001, 22050, 2)
    yield "flac", flac
    yield "flac-24", recording("FLAC", "PCM_24", 4096, 96000)
    yield "flac-cut", flac[:-3]
    mp3 = recording("MP3", "MPEG_LAYER_III", 7000, 44100, 2)
    yield "mp3", mp3
    yield "mp3-mpeg-2", recording("MP3", "MPEG_LAYER_III", 5000, 22050)
    yield "mp3-notes", b"ID3\x04\0\0\0\0\x01\x00" + bytes(128) + mp3 + b"TAG" + bytes(125)
    yield "mp3-cut", mp3[:-50]
    yield "mp3-untagged", mp3[mp3.index(mp3[:2], 4) :]
    yield "vorbis", recording("OGG", "VORBIS", 7000, 44100, 2)
    yield "opus", recording("OGG", "OPUS", 7001, 48000)
    yield "opus-16k", recording("OGG", "OPUS", 7001, 16000, 2)
    yield "opus-cut", recording("OGG", "OPUS", 7001, 48000)[:-9]
    yield "opus-twice", recording("OGG", "OPUS", 701, 48000) * 2
    m4a = in_mp4(44100, 9000)
    yield "m4a", m4a
    yield "m4a-stereo", in_mp4(48000, 5000, layout="stereo")
    yield "m4a-edited", edited(m4a, (100, 1500))
    yield "m4a-edited-twice", edited(m4a, (50, 1024), (50, 4000))
    yield "m4a-two-frames", edited(in_mp4(22050, 500), (20, 1024))
    yield "m4a-not-edited", edited(m4a, (0, 0)).replace(b"edts", b"free")
    yield "m4a-fragmented", in_mp4(44100, 9000, movflags="frag_keyframe+empty_moov")
    yield "m4a-cut", m4a[:-20]
    yield "m4a-rate-may-double", m4a.replace(b"\x56\xe5\0", b"\x56\xe5\x80")
    yield "alac", in_mp4(44100, 5000, codec="alac")
    yield "mp4-sound", video(sound=0.3)
    yield "mp4-without-sound", video()
    yield "aiff", recording("AIFF", "PCM_16", 100, 8000)
    yield "empty", b""
    yield "text", b"not a recording"


def in_mp4(
    rate: int, samples: int, codec: str = "aac", layout: str = "mono", movflags: str = ""
) -> bytes:
    import av

    path = Path(tempfile.mkdtemp()) / "file"
    options = {"movflags": movflags} if movflags else {}
    with av.open(str(path), "w", format="ipod", options=options) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        resampler = av.AudioResampler(stream.codec_context.format.name, layout, rate)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, samples), np.float32), "fltp", "mono")
        frame.rate, frame.pts = rate, 0
        for ready in resampler.resample(frame):
            output.mux(stream.encode(ready))
        output.mux(stream.encode(None))
    return path.read_bytes()


def as_audio_reads(data: bytes) -> dict[str, int] | None:
    """As vLLM 0.33.0 reads audio (``multimodal/media/audio.py``); None where it cannot."""
    import av
    import soundfile

    try:
        wave, rate = soundfile.read(io.BytesIO(data), always_2d=True)
        return {"num_samples": wave.shape[0], "sampling_rate": rate, "channels": wave.shape[1]}
    except soundfile.LibsndfileError:
        pass
    try:
        with av.open(io.BytesIO(data)) as container:
            stream = container.streams.audio[0]
            return {
                "num_samples": sum(frame.samples for frame in container.decode(stream)),
                "sampling_rate": stream.rate,
                "channels": stream.channels,
                "needs_ffmpeg": True,
            }
    except (av.FFmpegError, IndexError):
        return None


def write(path: Path, files: Iterator[tuple[str, bytes]], read: Callable[[bytes], object]) -> None:
    with path.open("w") as output:
        for name, data in files:
            line = {
                "name": name,
                "engine": read(data),
                "file": base64.b64encode(zlib.compress(data)).decode(),
            }
            output.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    write(
        ROOT / "videos" / "files.jsonl",
        chain(videos(), parts_of_videos(), other_videos(), further_videos()),
        as_opencv_reads,
    )
    write(ROOT / "audios" / "files.jsonl", recordings(), as_audio_reads)
