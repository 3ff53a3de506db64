"""Requests with images, which `tools/generate_rust_media.py` sends to vLLM's Rust frontend."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from image_cases import image_files
from PIL import ExifTags, Image
from small_models import ALL_MODELS, Files

MODELS: Final = {
    **{name: name for name in (
        "small-llava-1.5", "small-llava-next", "small-phi-3-vision", "small-phi-3.5-vision",
        "small-qwen2-vl", "small-qwen2.5-vl",
    )},
    "small-llava-onevision": "llava-onevision",
    # By their names some would want a parser's marks.
    **dict.fromkeys((
        "small-gemma-4", "small-kimi-k2.5", "small-llama-4", "small-minimax-m3",
        "small-muse-spark", "small-qwen3-omni", "small-qwen3-vl", "small-qwen3.5",
        "small-step-3-vl", "small-kimi-k3", "step-5", "nemotron-omni", "glm-5.3-flash",
    ), "mine"),
}  # fmt: skip
"""Model -> the model string by which it is served."""
SIZES: Final = (
    (1, 1), (1, 2), (10, 500), (500, 10), (1, 200), (1, 201), (57, 56), (640, 480), (300, 41),
    (84, 700), (778, 430), (705, 1184), (471, 363), (1123, 476), (70, 70),
)  # fmt: skip
MESSAGES_MODEL: Final = "small-qwen2.5-vl"
"""The model that is asked with every form of a message."""
FILES_MODEL: Final = "small-llava-next"
"""The model that is asked with every file: it counts an upright image otherwise than a flat one."""

CHANGED: Final[Mapping[str, tuple[str, str, dict[str, Any]]]] = {
    "another-budget": (
        "small-gemma-4", "processor_config.json", {"image_processor": {"max_soft_tokens": 70}}
    ),
    "limit-on-top": ("small-kimi-k2.5", "preprocessor_config.json", {"in_patch_limit": 40}),
    "side-on-top": ("small-kimi-k2.5", "preprocessor_config.json", {"patch_limit_on_one_side": 4}),
    "no-patch-token": ("small-llama-4", "config.json", {"image_token_index": None}),
    "another-side": (
        "small-llava-1.5", "processor_config.json",
        {"image_processor": {"size": {"shortest_edge": 448}}},
    ),
    "least-area": ("small-minimax-m3", "preprocessor_config.json", {"min_pixels": 90000}),
    "longest-side": ("small-minimax-m3", "preprocessor_config.json", {"max_long_side_pixel": 200}),
    "no-patch-size": ("small-qwen3-omni", "preprocessor_config.json", {"patch_size": None}),
}  # fmt: skip
"""A model, one of its files, and the fields that are changed there; None takes one out."""

NAMES: Final = (
    ("small-qwen2.5-vl", "mine"), ("small-qwen2.5-vl", "My-QWEN/of-VL"),
    ("small-qwen2.5-vl", "llava-qwen-vl"), ("small-qwen2.5-vl", "qwen3-vl"),
    ("small-qwen2-vl", "mine"), ("small-qwen2-vl", "llava-next"), ("small-qwen3-vl", "mine"),
    ("small-qwen3-vl", "qwen2-vl"), ("small-llava-1.5", "mine"),
    ("small-llava-1.5", "llava-next"), ("small-llava-next", "mine"),
    ("small-phi-3-vision", "mine"), ("small-phi-3-vision", "qwen-vl"), ("small-gemma-3", "mine"),
    ("small-gemma-3", "gemma-4"), ("small-gemma-4", "gemma-4"), ("small-internvl", "internvl"),
    ("small-pixtral-hf", "pixtral"), ("small-mistral3", "mine"), ("small-glm-4.1v", "glm-4.1v"),
    ("small-llava-onevision", "mine"), ("small-minimax-m3", "minimax-m3"),
    ("small-qwen3-omni", "qwen3-omni"), ("small-qwen2.5-omni", "qwen-vl"),
    ("small-exaone-4.5", "mine"), ("small-muse-glimmer", "mine"), ("small-kimi-k3", "kimi-k3"),
    ("small-qwen2-vl", "glm-4v"), ("small-qwen2-vl", "deepseek-vl"),
    ("small-deepseek-v4.1", "mine"),
)  # fmt: skip
"""A model, and the model string by which it is served."""


def _step5() -> Files:
    files = ALL_MODELS["small-step-3-vl"]()
    files["config.json"] |= {
        "model_type": "step5_vl",
        "architectures": ["Step5ForConditionalGeneration"],
    }
    return files


def _nemotron() -> Files:
    """The frontend does not start with other values than those of the published model."""
    files = ALL_MODELS["small-nemotron-omni"]()
    files["preprocessor_config.json"].pop("size")
    config = files["config.json"]
    config["vision_config"]["args"] |= {"min_num_patches": 1024, "max_num_patches": 13312}
    config["vision_config"] |= {
        "video_target_num_patches": 1024,
        "video_maintain_aspect_ratio": True,
        "video_temporal_patch_size": 2,
    }
    config |= {
        "model_type": "NemotronH_Nano_Omni_Reasoning_V3",
        "norm_mean": [0.48145466, 0.4578275, 0.40821073],
        "norm_std": [0.26862954, 0.26130258, 0.27577711],
    }
    return files


def _glm() -> Files:
    files = ALL_MODELS["small-glm-4.1v"]()
    files["config.json"] |= {
        "model_type": "glm5_next",
        "architectures": ["Glm5NextForConditionalGeneration"],
    }
    del files["processor_config.json"]
    files["preprocessor_config.json"] = {
        "image_processor_type": "Glm5NextImageProcessor",
        "max_image_tokens": 300,
    }
    return files


_OWN: Final = {"step-5": _step5, "nemotron-omni": _nemotron, "glm-5.3-flash": _glm}


def files_of(model: str, file: str = "", fields: Mapping[str, Any] = MappingProxyType({})) -> Files:
    """The files of a model, of which one has other fields."""
    files = {**ALL_MODELS, **_OWN}[model]()
    if file:
        changed = {**files.get(file, {}), **fields}
        files[file] = {name: value for name, value in changed.items() if value is not None}
    return files


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
    both = _user(_text("a"), image(picture(200, 60)), _text("b"), image(picture(90, 130)))
    sizes["both"] = both
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
