"""Ask the engine's own readers about the small videos and recordings of the tests.

    python tools/generate_media.py [FILE ...]

Each FILE is added to those of ``tests/core/videos/files.jsonl`` (with ``--audio``: of
``tests/core/audios/files.jsonl``) under its name without suffix, or replaces the one of that name.
Then all are read again. Needs OpenCV, PyAV and soundfile. A file is best a kilobyte or two: few
frames, and few pixels.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import zlib
from pathlib import Path
from typing import Any

from vector_files import TESTS


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


def main() -> None:
    """Write both files anew."""
    from media_files import media_files

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", metavar="FILE", type=Path, nargs="*", help="files to add")
    parser.add_argument("--audio", action="store_true", help="they are recordings")
    arguments = parser.parse_args()
    for room, read in (("videos", as_opencv_reads), ("audios", as_audio_reads)):
        known = {name: file.data for name, file in media_files(room).items()}
        if arguments.audio == (room == "audios"):
            known |= {path.stem: path.read_bytes() for path in arguments.files}
        with (TESTS / "core" / room / "files.jsonl").open("w", encoding="utf-8") as output:
            for name, data in known.items():
                file = base64.b64encode(zlib.compress(data)).decode()
                print(json.dumps({"name": name, "engine": read(data), "file": file}), file=output)


if __name__ == "__main__":
    main()
