"""Requests with images, which `tools/generate_rust_media.py` sends to vLLM's Rust frontend."""

from __future__ import annotations

import base64
import io
from typing import Any, Final

from image_cases import image_files
from PIL import ExifTags, Image

MODELS: Final = {
    **{name: name for name in (
        "small-llava-1.5", "small-llava-next", "small-phi-3-vision", "small-phi-3.5-vision",
        "small-qwen2-vl", "small-qwen2.5-vl",
    )},
    "small-qwen3-vl": "mine",  # by its name it would want a reasoning parser's marks
}  # fmt: skip
"""Model -> the model string by which it is served."""
SIZES: Final = (
    (1, 1), (1, 2), (10, 500), (500, 10), (1, 200), (1, 201), (57, 56), (640, 480), (300, 41),
    (84, 700), (778, 430), (705, 1184), (471, 363), (1123, 476),
)  # fmt: skip
MESSAGES_MODEL: Final = "small-qwen2.5-vl"
"""The model that is asked with every form of a message."""
FILES_MODEL: Final = "small-llava-next"
"""The model that is asked with every file: it counts an upright image otherwise than a flat one."""

NAMES: Final = (
    ("small-qwen2.5-vl", "mine"), ("small-qwen2.5-vl", "My-QWEN/of-VL"),
    ("small-qwen2.5-vl", "llava-qwen-vl"), ("small-qwen2.5-vl", "qwen3-vl"),
    ("small-qwen2-vl", "mine"), ("small-qwen2-vl", "llava-next"), ("small-qwen3-vl", "mine"),
    ("small-qwen3-vl", "qwen2-vl"), ("small-llava-1.5", "mine"),
    ("small-llava-1.5", "llava-next"), ("small-llava-next", "mine"),
    ("small-phi-3-vision", "mine"), ("small-phi-3-vision", "qwen-vl"), ("small-gemma-3", "mine"),
)  # fmt: skip
"""A model, and the model string by which it is served."""


def picture(width: int, height: int) -> bytes:
    """A black picture, as PNG of one bit."""
    file = io.BytesIO()
    Image.new("1", (width, height)).save(file, "PNG")
    return file.getvalue()


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def image(data: bytes, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data)}, **more}


def requests(model: str) -> dict[str, dict[str, Any]]:
    """The requests to one model, by name."""
    sizes = {f"{w}x{h}": _user(image(picture(w, h)), _text("What?")) for w, h in SIZES}
    more = {MESSAGES_MODEL: _messages, FILES_MODEL: _files}
    return {**sizes, **(more[model]() if model in more else {})}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _user(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}], **more}


def _files() -> dict[str, dict[str, Any]]:
    whole = {f"file-{name}": data for name, data in image_files().items()}
    noise = io.BytesIO()
    Image.radial_gradient("L").resize((90, 40)).save(noise, "PNG")
    png = noise.getvalue()
    flipped = bytearray(png)
    flipped[len(png) // 2] ^= 1
    ends = {f"png-without-{count}": png[:-count] for count in (1, 4, 5, 8, 12, 40)}
    files = {**whole, **ends, "png-flipped": bytes(flipped), "jpeg-exif-twice": _two_exifs()}
    return {name: _user(image(data)) for name, data in files.items()}


def _two_exifs() -> bytes:
    """A JPEG file that is to be turned by its first EXIF data, and not by its second."""
    parts = []
    for orientation in (6, 1):
        exif, file = Image.Exif(), io.BytesIO()
        exif[ExifTags.Base.Orientation] = orientation
        Image.new("L", (90, 40)).save(file, "JPEG", exif=exif)
        start = file.getvalue().index(b"\xff\xe1")
        end = start + 2 + int.from_bytes(file.getvalue()[start + 2 : start + 4], "big")
        parts.append(file.getvalue()[start:end])
    plain = io.BytesIO()
    Image.new("L", (90, 40)).save(plain, "JPEG")
    return plain.getvalue()[:2] + b"".join(parts) + plain.getvalue()[2:]


def _messages() -> dict[str, dict[str, Any]]:
    one, two = image(picture(200, 60)), image(picture(90, 130))
    said = {"role": "assistant", "content": "Yes"}
    url = one["image_url"]["url"]
    pad = "<|image_pad|>"
    return {
        "two": _user(_text("a"), one, _text("b"), two, _text("c")),
        "the-same-twice": _user(one, one),
        "twelve": _user(*[one] * 12),
        "two-turns": {
            "messages": [*_user(one)["messages"], said, *_user(_text("b"), two)["messages"]]
        },
        "system": {"messages": [{"role": "system", "content": [one]}, *_user(two)["messages"]]},
        "developer": {"messages": [{"role": "developer", "content": [one]}, *_user()["messages"]]},
        "other-role": {"messages": [{"role": "critic", "content": [one]}]},
        "assistant": {"messages": [*_user(one)["messages"], {**said, "content": [two]}]},
        "continued": {
            "messages": [*_user(one)["messages"], said],
            "add_generation_prompt": False,
            "continue_final_message": True,
        },
        "typed-before": _user(_text(f"a {pad} b"), one),
        "typed-twice": _user(_text(f"{pad} {pad}"), one),
        "typed-after": _user(one, _text(pad)),
        "typed-alone": _user(_text(pad)),
        "uuid": _user(image(picture(9, 9), uuid="mine")),
        "uuid-empty": _user(image(picture(9, 9), uuid="")),
        "uuid-null": _user(image(picture(9, 9), uuid=None)),
        "uuid-number": _user(image(picture(9, 9), uuid=1)),
        "uuid-twice": _user(image(picture(9, 9), uuid="a"), image(picture(9, 9), uuid="a")),
        "detail": _user({"type": "image_url", "image_url": {"url": url, "detail": "low"}}),
        "detail-unknown": _user({"type": "image_url", "image_url": {"url": url, "detail": "all"}}),
        "url-alone": _user({"type": "image_url", "image_url": url}),
        "url-null": _user({"type": "image_url", "image_url": {"url": None}}),
        "no-image-but-uuid": _user({"type": "image_url", "image_url": None, "uuid": "mine"}),
        "more-keys": _user({**one, "more": 1}),
        "embeddings": _user({"type": "image_embeds", "image_embeds": "AAAA"}),
        "processor-kwargs": _user(one, mm_processor_kwargs={"max_pixels": 3136}),
        "upper-case-scheme": _user(
            {"type": "image_url", "image_url": {"url": url.replace("data:", "DATA:")}}
        ),
        "not-base64": _user(
            {"type": "image_url", "image_url": {"url": url.replace(";base64", "")}}
        ),
        "line-break": _user({"type": "image_url", "image_url": {"url": f"{url[:60]}\n{url[60:]}"}}),
        "salt": _user(one, cache_salt="s"),
        "special-tokens": _user(one, add_special_tokens=True),
    }
