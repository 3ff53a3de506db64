"""Files of this machine that ``file:`` links name, beside what vLLM's connector reads of them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from media_files import media_files, png_url

from mmroute import InexactError, Normalizer, Reason, Routing, from_openai
from mmroute.answering import local_files
from mmroute.answering.local_files import LocalFiles
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.engines.vllm_rust.settings import RustSettings

OMNI: Final = "small-qwen2.5-omni"
PICTURE: Final = base64.b64decode(png_url(64, 48).partition(",")[2])
FILES: Final = {
    "image_url": (PICTURE, ""),
    "video_url": (media_files("videos")["plain"].data, "<|VIDEO|>"),
    "audio_url": (media_files("audios")["flac"].data, "<|AUDIO|>"),
}
REFUSED, FAILED = Reason.IMAGE_LINK_REFUSED, Reason.IMAGE_LINK_FAILED


@pytest.fixture
def media(tmp_path: Path) -> Path:
    """A directory of files, each of which holds its own name, and links out of it."""
    directory = tmp_path / "media"
    (directory / "sub").mkdir(parents=True)
    for name in ("a", "sub/b", "a b", "q?x", "p%41", "pA", "ü", "../outside", "../media2"):
        (directory / name).write_text(name.rpartition("/")[2])
    (directory / "in").symlink_to(directory / "a")
    (directory / "out").symlink_to(tmp_path / "outside")
    (directory / "up").symlink_to(tmp_path)
    (directory / "loop").symlink_to(directory / "loop")
    (tmp_path / "linked").symlink_to(directory)
    return directory


# Source: vLLM 0.33.0 multimodal/media/connector.py (`load_from_url`), asked for each.
@pytest.mark.parametrize("directory", ["", "/", "/../linked"])
@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("file://MEDIA/a", "a"),
        ("FILE:MEDIA/a", "a"),
        ("file:////MEDIA//a", "a"),
        ("file://MEDIA/a?x=1", "a"),
        ("file://MEDIA/a#x", "a"),
        ("file://MEDIA/a b", "a b"),
        ("file://MEDIA/a%20b", "a b"),
        ("file://MEDIA/q%3Fx", "q?x"),
        ("file://MEDIA/p%41", "pA"),
        ("file://MEDIA/p%2541", "p%41"),
        ("file://MEDIA/%C3%BC", "ü"),
        ("file://MEDIA/sub%2Fb", "b"),
        ("file://MEDIA/sub/../a", "a"),
        ("file://MEDIA/in", "a"),
        ("file://MEDIA/up/media/a", "a"),
        ("file://MEDIA/../linked/a", "a"),
        ("file://MEDIA/out", REFUSED),
        ("file://MEDIA/up/outside", REFUSED),
        ("file://MEDIA/../outside", REFUSED),
        ("file://MEDIA/%2e%2e/outside", REFUSED),
        ("file://MEDIA2", REFUSED),
        ("file://MEDIA", REFUSED),
        ("file://localhostMEDIA/a", REFUSED),
        ("file://./MEDIA/a", REFUSED),
        ("file:", REFUSED),
        ("file:///etc/passwd", REFUSED),
        ("file://MEDIA/q?x", FAILED),
        ("file://MEDIA/loop", FAILED),
        ("file://MEDIA/sub", FAILED),
        ("file://MEDIA/none", FAILED),
        ("file://MEDIA/none/../a", FAILED),
        ("file://MEDIA/a%00", FAILED),
    ],
)
def test_files_are_read_below_the_directory_alone(
    media: Path, directory: str, link: str, found: str | Reason
) -> None:
    files = LocalFiles(f"{media}{directory}")
    link = link.replace("MEDIA", str(media))
    if isinstance(found, Reason):
        with pytest.raises(InexactError) as refused:
            files.read(link)
        assert refused.value.reason is found
    else:
        assert files.read(link).decode() == found


def test_files_of_a_request_are_limited_together(
    media: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_files, "_MAX_BYTES", 3)
    files = LocalFiles(str(media))
    assert (files.read(f"file:{media}/a"), files.read(f"file:{media}/sub/b")) == (b"a", b"b")
    with pytest.raises(InexactError, match="more than 3 bytes"):
        files.read(f"file:{media}/pA")


def ask(model: Normalizer, kind: str, url: str, **more: Any) -> Routing:
    part = {"type": kind, kind: {"url": url}, **more}
    text = {"type": "text", "text": FILES[kind][1]}  # which the small template does not write
    return model.normalize(messages=[{"role": "user", "content": [part, text]}])


@pytest.mark.parametrize("kind", FILES)
def test_an_item_by_its_file_is_the_item_in_a_data_url(
    small_model: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    settings = VllmSettings.from_args(f"vllm serve m --allowed-local-media-path {tmp_path}")
    model = Normalizer.from_pretrained(small_model(OMNI), engine_settings=settings)
    (tmp_path / "file").write_bytes(FILES[kind][0])
    named = {} if kind != "audio_url" else {"uuid": "a"}  # whose identity takes its samples
    by_file = ask(model, kind, f"file://{tmp_path}/file", **named)
    data = base64.b64encode(FILES[kind][0]).decode()
    sent = ask(model, kind, f"data:x/y;base64,{data}", **named)
    assert by_file.token_ids.tolist() == sent.token_ids.tolist()
    assert by_file.block_hashes(block_size=1) == sent.block_hashes(block_size=1)


def test_without_the_option_the_engine_refuses_a_file(
    small_model: Callable[[str], Path], media: Path
) -> None:
    link = f"file://{media}/a"
    python, rust = (
        Normalizer.from_pretrained(small_model("small-qwen2.5-vl"), engine_settings=settings)
        for settings in (VllmSettings(), RustSettings())
    )
    assert ask(python, "image_url", link).reason is Reason.INVALID_REQUEST
    assert ask(rust, "image_url", link).reason is Reason.IMAGE_SIZE_UNKNOWN
    sglang = Normalizer.from_pretrained(small_model("small-qwen2.5-vl"), backend="sglang")
    assert ask(sglang, "image_url", link).reason is Reason.IMAGE_SIZE_UNKNOWN


def test_a_file_that_is_not_here_is_not_refused_in_the_engines_name(
    small_model: Callable[[str], Path], media: Path
) -> None:
    settings = VllmSettings(model="m", local_media_path=str(media), complete=True)
    model = Normalizer.from_pretrained(small_model("small-qwen2.5-vl"), engine_settings=settings)
    reasons = {"none": Reason.IMAGE_LINK_FAILED, "../outside": Reason.IMAGE_LINK_REFUSED}
    for name, reason in reasons.items():
        part = {"type": "image_url", "image_url": {"url": f"file://{media}/{name}"}}
        body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
        assert model.answer(from_openai(body)).reason is reason


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_no_item_is_not_told_of(
    small_model: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    model = Normalizer.from_pretrained(
        small_model(OMNI), engine_settings=VllmSettings(local_media_path=str(tmp_path))
    )
    (tmp_path / "file").write_text("secret text")
    assert "secret" not in str(ask(model, kind, f"file://{tmp_path}/file").message)


def test_mistral_common_does_not_decode_the_name_of_a_file(tmp_path: Path) -> None:
    settings = VllmSettings(local_media_path=str(tmp_path))
    model = Normalizer.from_pretrained("pixtral-12b-2409", engine_settings=settings)
    for name in ("a", "a b"):
        (tmp_path / name).write_bytes(PICTURE)
    sent = ask(model, "image_url", png_url(64, 48))
    assert sent.exact
    for name in ("a", "a b"):
        read = ask(model, "image_url", f"file://{tmp_path}/{name}")
        assert read.token_ids.tolist() == sent.token_ids.tolist()
    assert ask(model, "image_url", f"file://{tmp_path}/a%20b").reason is REFUSED
