"""Settings that engines are started with, by name, and requests: most settings change one."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

TEMPLATE: Final = (
    "{% for m in messages %}[{{ m.role }}] {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif p.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}{{ mood }}"
)
TELLING: Final = (
    "--block-size 32 --served-model-name first second "
    """--mm-processor-kwargs '{"max_pixels": 3136}' """
    """--limit-mm-per-prompt '{"image": 2}' --max-model-len 4096 --max-num-batched-tokens 1024 """
    "--prefix-caching-hash-algo sha256_cbor --enable-lora --enable-tower-connector-lora"
)
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "small-qwen2.5-vl": {
        "defaults": "",
        "model string": "",
        "served names": "--served-model-name first second",
        "chat template": f"--chat-template {shlex.quote(TEMPLATE)}",
        "content format": "--chat-template-content-format string",
        "template arguments": f"--chat-template {shlex.quote(TEMPLATE)} "
        """--default-chat-template-kwargs '{"mood": "gladly"}'""",
        "processor arguments": """--mm-processor-kwargs '{"max_pixels": 3136}'""",
        "processor arguments of requests": """--mm-processor-kwargs '{"max_pixels": 3136}' """
        "--trust-request-mm-kwargs",
        "media arguments": f"--chat-template {shlex.quote(TEMPLATE)} "
        "--trust-request-mm-kwargs --media-io-kwargs.video.num_frames 4 "
        "--media-io-kwargs.image.rgba_background_color '[1, 2, 255]'",
        "limits": """--limit-mm-per-prompt '{"image": 1}'""",
        "no media": "--language-model-only",
        "longest context": "--max-model-len 48",
        "batched tokens": "--max-num-batched-tokens 1024 --max-num-seqs 8 "
        "--trust-request-mm-kwargs",
        "more batched tokens": "--max-num-batched-tokens 4096 --trust-request-mm-kwargs",
        "block size": "--block-size 32",
        "hash algorithm": "--prefix-caching-hash-algo sha256_cbor",
        "seed": "PYTHONHASHSEED=7 SERVE ",
        "algorithm and seed": "PYTHONHASHSEED=42 SERVE --prefix-caching-hash-algo xxhash",
        "identity algorithm": "--mm-hasher-algorithm sha256",
        "adapters": "--enable-lora --lora-modules sql=/adapters/sql",
        "adapters in towers": "--enable-lora --enable-tower-connector-lora "
        "--lora-modules sql=/adapters/sql",
        "image pixels": "VLLM_MAX_IMAGE_PIXELS=5000 SERVE ",
        "no processor cache": "--mm-processor-cache-gb 0",
        "tokenizer mode": "--tokenizer-mode hf",
    },
    "pixtral-12b-2409": {
        "tokenizer mode": "--tokenizer-mode mistral --config-format mistral --block-size 16",
    },
}


def settings_cases(setting: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The requests, of which most settings change one."""
    from mmroute.lab.parity.oracles.pictures import data_url

    words = "what is in this picture and the other one ? " * 3

    def chat(*parts: Any, **fields: Any) -> dict[str, Any]:
        content = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else list(parts)
        return {"messages": [{"role": "user", "content": content}], **fields}

    def picture(width: int, height: int) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": data_url(width, height)}}

    text = {"type": "text", "text": words}
    yield "text", chat(words)
    yield "salted text", chat(words, cache_salt="tenant")
    yield "image", chat(picture(96, 64), text)
    yield "two images", chat(picture(64, 64), text, picture(40, 56))
    yield "a question", chat("what")
    if setting == "defaults":
        yield from _answers_of_parts()
    if setting == "template arguments":
        yield "own arguments", chat(words, chat_template_kwargs={"mood": "sadly"})
    if setting == "processor arguments of requests":
        own = {"max_pixels": 6272}
        yield "own arguments", chat(picture(96, 64), text, mm_processor_kwargs=own)
        on_blue = {"image_mode": "RGB", "rgba_background_color": [1, 2, 255]}
        for name, reading in ("on blue", on_blue), ("as RGB", {"image_mode": "RGB"}):
            yield name, chat(_transparent(), text, media_io_kwargs={"image": reading})
        yield "kept whole", chat(picture(40, 56), text, truncate_prompt_tokens=-1)
    if setting.endswith("batched tokens"):
        large = {"min_pixels": 28 * 28 * 2000, "max_pixels": 28 * 28 * 2500}
        yield "large image", chat(picture(96, 64), text, mm_processor_kwargs=large)
    if setting.startswith("adapters"):
        lora = {"lora_name": "sql", "lora_path": "/adapters/sql"}
        yield "adapter", chat(picture(96, 64), text, lora=lora)
    if setting == "media arguments":
        yield "transparent", chat(_transparent(), text)
        on_green = {"image": {"image_mode": "RGB", "rgba_background_color": [0, 9, 0]}}
        yield "own arguments", chat(_transparent(), text, media_io_kwargs=on_green)
        yield "video", chat({"type": "video_url", "video_url": {"url": _video()}}, text)


def _answers_of_parts() -> Iterator[tuple[str, dict[str, Any]]]:
    """Parts of a form that is accepted beside some fields alone."""
    parts = [{"type": "output_text", "text": "a cat"}, "in a picture"]
    for name in ("reasoning", "tool_call_id", "task"):
        answer = {"role": "assistant", "content": parts, name: "a"}
        yield f"parts beside {name}", {"messages": [answer, {"role": "user", "content": "what"}]}


def _transparent() -> dict[str, Any]:
    """A picture that vLLM has to convert, of those that the tests of headers read."""
    from image_vectors import file_urls

    return {"type": "image_url", "image_url": {"url": file_urls()["png-rgba"]}}


def _video() -> str:
    """Thirty frames of 32x16 pixels, of those that the tests of headers read."""
    from media_files import media_files

    data = media_files("videos")["sound-shorter"].data
    return "data:video/mp4;base64," + base64.b64encode(data).decode()
