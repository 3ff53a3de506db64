"""Videos and audio of a request: how they reach their parts, and what a routing says of them."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from media_files import media_files
from PIL import Image

from mmroute import (
    AudioLength,
    ImageSize,
    InexactError,
    Modality,
    Normalizer,
    Reason,
    Routing,
    VideoSize,
    read_audio,
    read_video,
)

QWEN = "small-qwen2.5-vl"
VIDEOS = media_files("videos")
PLAIN = VIDEOS["plain"]
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "Hi"}]}]


def video_url(name: str, **more: Any) -> dict[str, Any]:
    data = base64.b64encode(VIDEOS[name].data).decode()
    return {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{data}"}, **more}


def test_a_file_and_its_numbers_have_the_same_tokens(
    normalizer: Callable[[str], Normalizer],
) -> None:
    model = normalizer(QWEN)
    engine = PLAIN.engine or {}
    size = VideoSize(32, 16, engine["num_frames"], engine["fps"])
    by_file = model.normalize(prompt=VIDEO, videos=[read_video(PLAIN.data)])
    by_numbers = model.normalize(prompt=VIDEO, videos=[size])
    assert by_file.token_ids.tolist() == by_numbers.token_ids.tolist()
    assert [place.modality for place in by_file.placeholders] == [Modality.VIDEO]


def test_a_file_has_an_identity_and_numbers_have_none(
    normalizer: Callable[[str], Normalizer],
) -> None:
    model = normalizer(QWEN)
    by_file = model.normalize(prompt=VIDEO, videos=[read_video(PLAIN.data)])
    assert by_file.block_hashes() is not None
    by_numbers = model.normalize(prompt=VIDEO, videos=[VideoSize(640, 480, 60, 30.0)])
    with pytest.raises(InexactError, match="give the `uuid`") as caught:
        by_numbers.block_hashes()
    assert caught.value.reason is Reason.ITEM_IDENTITY_UNKNOWN
    named = model.normalize(prompt=VIDEO, videos=[VideoSize(640, 480, 60, 30.0, "clip")])
    assert [str(identity) for identity in named.identities] == ["clip"]


def test_frames_that_are_smaller_than_their_file_have_no_identity(
    normalizer: Callable[[str], Normalizer],
) -> None:
    padding = (20_000).to_bytes(4) + b"free" + bytes(19_992)
    large = read_video(PLAIN.data + padding)  # 6 frames of 32x16 pixels are 9,216 bytes
    routing = normalizer(QWEN).normalize(prompt=VIDEO, videos=[large])
    assert routing.exact
    assert routing.identities == (None,)


def test_images_and_videos_take_their_own_places(
    normalizer: Callable[[str], Normalizer],
) -> None:
    size = VideoSize(64, 64, 30, 30.0)
    routing = normalizer(QWEN).normalize(
        prompt=f"{VIDEO}{VIDEO.replace('video', 'image')}{VIDEO}",
        images=[ImageSize(64, 64)],
        videos=[size, size],
    )
    assert [place.modality.value for place in routing.placeholders] == ["video", "image", "video"]
    assert [place.item for place in routing.placeholders] == [0, 0, 1]


@pytest.mark.parametrize(
    ("parts", "videos", "reason"),
    [
        ([{"type": "video"}], [], Reason.ITEM_COUNT_MISMATCH),
        ([], [VideoSize(64, 64, 30, 30.0)], Reason.ITEM_COUNT_MISMATCH),
        ([{"type": "video"}], [VideoSize(64, 64, 1, 30.0)], Reason.ITEM_REFUSED),
        ([{"type": "video"}], [VideoSize(3840, 2160, 6000, 25.0)], Reason.ITEM_REFUSED),
        ([{"type": "video"}], [VideoSize(64, 64, 10**15, 30.0)], Reason.VIDEO_NOT_PREDICTABLE),
        ([{"type": "video"}], [VideoSize(64, 64, 30, 1e-300)], Reason.VIDEO_NOT_PREDICTABLE),
        ([{"type": "video"}], [VideoSize(6000, 20, 60, 30.0)], Reason.IMAGE_REFUSED),
        ([{"type": "video"}], [VideoSize(64, 64, 0, 30.0)], Reason.INVALID_REQUEST),
        ([{"type": "video"}], [VideoSize(64, 64, 9, 3.0, lost=0.0)], Reason.INVALID_REQUEST),  # type: ignore[arg-type]  # what is refused
        ([{"type": "video"}], [VideoSize(64, 64, 9, 3.0, lost=-1)], Reason.INVALID_REQUEST),
        ([{"type": "video"}], [VideoSize(64, 64, 9, 3.0, unreadable=-5)], Reason.INVALID_REQUEST),
        ([{"type": "video"}], [VideoSize(64, 64, 9, 3.0, unreadable=1.5)], Reason.INVALID_REQUEST),  # type: ignore[arg-type]  # what is refused
        ([{"type": "video"}], [VideoSize(64, 64, 9, 3.0, unreadable="1")], Reason.INVALID_REQUEST),  # type: ignore[arg-type]  # what is refused
        ([{"type": "video"}], [VideoSize(64, 64, 9, 3.0, unreadable=9)], Reason.ITEM_REFUSED),
        ([{"type": "video"}], [AudioLength(1, 1)], Reason.INVALID_REQUEST),
        ([video_url("two-videos")], [], Reason.VIDEO_NOT_PREDICTABLE),
        ([{"type": "audio"}], [], Reason.UNSUPPORTED_MODALITY),
        ([{"type": "input_audio", "input_audio": {}}], [], Reason.INVALID_REQUEST),
    ],
)
def test_what_is_refused(
    parts: list[dict[str, Any]],
    videos: list[Any],
    reason: Reason,
    normalizer: Callable[[str], Normalizer],
) -> None:
    routing = normalizer(QWEN).normalize(messages=user(*parts), videos=videos)
    assert routing.reason is reason, routing.message


def test_kwargs_change_which_frames_are_taken(normalizer: Callable[[str], Normalizer]) -> None:
    model = normalizer(QWEN)
    videos = [VideoSize(64, 64, 300, 30.0)]
    slow = model.normalize(prompt=VIDEO, videos=videos, media_io_kwargs={"video": {"fps": 1}})
    assert len(slow.token_ids) < len(model.normalize(prompt=VIDEO, videos=videos).token_ids)
    backend = {"video": {"backend": "torchcodec"}}
    other = model.normalize(prompt=VIDEO, videos=videos, media_io_kwargs=backend)
    assert other.reason is Reason.UNSUPPORTED_PROCESSOR_KWARGS
    null = model.normalize(prompt=VIDEO, videos=videos, media_io_kwargs={"video": None})
    assert null.reason is Reason.INVALID_REQUEST


def test_more_frames_than_any_context_holds_are_not_written(
    normalizer: Callable[[str], Normalizer],
) -> None:
    model = normalizer("small-gemma-4")
    everything = {"video": {"num_frames": -1}}
    videos = [VideoSize(10, 10, 2_000_000, 30.0)]
    tracemalloc.start()
    routing = model.normalize(
        messages=user({"type": "video"}), videos=videos, media_io_kwargs=everything
    )
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert routing.reason is Reason.ITEM_TOO_LARGE
    assert most < 8 << 20


def test_a_recording_is_read() -> None:
    wav = media_files("audios")["wav-PCM_16"]
    engine = wav.engine or {}
    found = read_audio(wav.data, uuid="sound")
    assert found == AudioLength(engine["num_samples"], engine["sampling_rate"], "sound", 2)


def test_no_decoder_and_no_process_is_started(
    normalizer: Callable[[str], Normalizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    for decoder in ("av", "cv2", "imageio_ffmpeg", "soundfile", "torch", "torchcodec", "soxr"):
        monkeypatch.setitem(sys.modules, decoder, None)  # importing it fails
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(os, "posix_spawn", None)
    monkeypatch.setattr(Image.Image, "load", None)
    for name in ("plain", "webm-vp8", "gif-25"):
        assert (
            normalizer(QWEN).normalize(prompt=VIDEO, videos=[read_video(VIDEOS[name].data)]).exact
        )
    for name in ("wav-PCM_16", "flac", "mp3", "vorbis"):
        assert read_audio(media_files("audios")[name].data).num_samples


def test_an_item_without_a_token_is_refused(normalizer: Callable[[str], Normalizer]) -> None:
    """vLLM 0.33.0: "Expected there to be 1 prompt placeholders ... found 0"."""
    model = normalizer("small-qwen2.5-omni")
    limits = {"merge_size": 1, "min_pixels": 196, "max_pixels": 784}
    prompt = "<|vision_start|><|IMAGE|><|vision_end|>"

    def answer(side: int) -> Routing:
        images = [ImageSize(side, side, "square")]
        return model.normalize(prompt=prompt, images=images, mm_processor_kwargs=limits)

    assert answer(14).reason is Reason.IMAGE_REFUSED
    assert answer(28).placeholders[0].length == 1
    assert len(answer(28).block_hashes(block_size=1)) == len(answer(28).token_ids)


def test_what_omni_makes_of_surplus_placeholders_depends_on_its_cache(
    normalizer: Callable[[str], Normalizer],
) -> None:
    model = normalizer("small-qwen2.5-omni")
    items: dict[str, Any] = {
        "videos": [VideoSize(64, 64, 8, 2.0)],
        "audios": [AudioLength(16_000, 16_000)],
    }
    assert model.normalize(prompt="<|VIDEO|><|AUDIO|>", **items).exact
    assert model.normalize(prompt="<|VIDEO|><|VIDEO|>", videos=items["videos"]).exact
    surplus = model.normalize(prompt="<|VIDEO|><|AUDIO|><|AUDIO|>", **items)
    assert surplus.reason is Reason.PLACEHOLDER_COUNT_MISMATCH


def test_kwargs_of_images_are_checked_beside_videos(
    normalizer: Callable[[str], Normalizer],
) -> None:
    """vLLM 0.33.0 fails on unknown ones in ``images_kwargs``, though there is no image."""
    model = normalizer("small-qwen2.5-vl")

    def ask(kwargs: dict[str, Any]) -> Routing:
        return model.normalize(
            prompt="<|video_pad|>",
            videos=[VideoSize(64, 48, 8, 4.0)],
            mm_processor_kwargs={"images_kwargs": kwargs},
        )

    assert ask({"max_pixels": 50176}).exact
    assert ask({"made_up": 1}).reason is Reason.UNSUPPORTED_PROCESSOR_KWARGS
