"""The requests of SGLang's vectors. Images are written by their numbers.

The uuids of images beside a prompt are their mm_hashes. Chats with images are sent to ``/generate``
as SGLang's chat route makes them, with mm_hashes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mistral_common
from small_models import ALL_MODELS

PLACEHOLDERS = {
    "small-command-a-vision": "<|IMG_PATCH|>",
    "small-deepseek-ocr": "<image>",
    "small-deepseek-vl2": "<image>",
    "small-dots-ocr": "<|img|><|imgpad|><|endofimg|>",
    "small-gemma-3": "<start_of_image>",
    "small-gemma-3n": "<image_soft_token>",
    "small-gemma-4": "<|image|>",
    "small-glm-4.1v": "<|begin_of_image|><|image|><|end_of_image|>",
    "small-granite4-vision": "<image>",
    "small-idefics3": "<image>",
    "small-internvl": "<IMG_CONTEXT>",
    "small-lfm2-vl": "<image>",
    "small-llama": "<image>",
    "small-llama-4": "<|image|>",
    "small-llama-probe": "<image>",
    "small-llava-next": "<image>",
    "small-llava-onevision": "<image>",
    "small-mistral3": "[IMG]",
    "small-mistral3-tekken": "[IMG]",
    "small-nemotron-nano-vl": "<image>",
    "small-pixtral-hf": "[IMG]",
    "small-qwen2-vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "small-qwen2.5-vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "small-qwen3-next": "<image>",
    "small-qwen3-omni": "<|vision_start|><|image_pad|><|vision_end|>",
    "small-qwen3-vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "small-qwen3.5": "<|vision_start|><|image_pad|><|vision_end|>",
    "small-step-3-vl": "<im_patch>",
}

_TEKKEN = "-tekken"  # with the vocabulary that comes with mistral-common
_PROBE = "-probe"  # with a chat template that shows all that it gets
_SHOWS_ALL = (
    "{{ messages | tojson }} {{ tools | tojson if tools else 'no tools' }} "
    "{{ thinking is defined and thinking }} {{ enable_thinking is defined and enable_thinking }} "
    "{{ reasoning_effort if reasoning_effort is defined else 'no effort' }}"
    "{% for message in messages %}{% endfor %}"
)
# What SGLang needs of a model's files, and vLLM does not.
_FIELDS: dict[str, dict[str, dict[str, Any]]] = {
    "small-deepseek-ocr": {
        "config.json": {"auto_map": {"AutoModel": "modeling_deepseekocr.DeepseekOCRForCausalLM"}},
        "processor_config.json": {
            "candidate_resolutions": [[1024, 1024]], "patch_size": 16, "downsample_ratio": 4,
        },
    },
    "small-llama-4": {"tokenizer_config.json": {"pad_token": "<|eot|>"}},
    "small-nemotron-nano-vl": {"tokenizer_config.json": {"unk_token": "<|endoftext|>"}},
}  # fmt: skip

_IMAGE = {"type": "image"}
_PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACgAAAAeCAIAAADRv8uKAAAAK0lEQVR42u"
    "3NMQ0AAAgDsL1YRDGykAFHk/5N9ZyIWCwWi8VisVgsFov/xguw73ncut2/CAAAAABJRU5ErkJggg=="
)
_FIRST, _SECOND = "00000000deadbeef", "fedcba9876543210"
_WEATHER = {
    "type": "function",
    "function": {
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "name": "weather",
    },
}
_CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
_NAMED = {"type": "function", "function": {"name": "clock"}}
_CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Bonn"}'},
}


def files_of(model: str) -> dict[str, Any]:
    """The files of one model."""
    files = ALL_MODELS[model.removesuffix(_TEKKEN).removesuffix(_PROBE)]()
    if model.endswith(_PROBE):
        files["tokenizer_config.json"]["chat_template"] = _SHOWS_ALL
    if model.endswith(_TEKKEN):
        config = files["config.json"]
        text = {**config["text_config"], "vocab_size": 131072}
        files["config.json"] = {**config, "text_config": text, "image_token_index": 10}
        tekken = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
        del files["tokenizer.json"]
        return {**files, "tekken.json": tekken.read_text(encoding="utf-8")}
    changed = {f: {**files.get(f, {}), **own} for f, own in _FIELDS.get(model, {}).items()}
    return {**files, **changed}


def cases(model: str) -> Iterator[dict[str, Any]]:
    """The requests for one model."""
    tekken = model.endswith(_TEKKEN)
    for name, case in _chats().items():
        # What mistral-common makes of an effort is not covered.
        if "reasoning_effort" not in case.get("chat_template_kwargs", ()) or not tekken:
            yield {"id": name, **_for_generate(case)}
    for name, case in _prompts(PLACEHOLDERS[model]).items():
        # The special tokens of a prompt for mistral-common are read beside images alone.
        if "images" not in case or not tekken:
            yield {"id": name, **case}


def _for_generate(chat: dict[str, Any]) -> dict[str, Any]:
    """A chat with the uuids of its images as mm_hashes."""
    images = [dict(image) for image in chat.get("images", ())]
    uuids = [image.pop("uuid", None) for image in images]
    named = {"mm_hashes": uuids} if images and all(uuids) else {}
    return {**chat, **({"images": images} if images else {}), **named}


def _image(width: int, height: int, uuid: str | None = None, **more: Any) -> dict[str, Any]:
    return {"width": width, "height": height, **({"uuid": uuid} if uuid else {}), **more}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _picture(detail: str | None = None) -> dict[str, Any]:
    """A picture whose file is in the message."""
    more = {} if detail is None else {"detail": detail}
    return {"type": "image_url", "image_url": {"url": _PNG, **more}}


def _user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def _says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _with_parameters(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def _chats() -> dict[str, dict[str, Any]]:
    look = _user(_IMAGE, _text("Look at this."))
    hello = _says("user", "Hello there, how are you?")
    return {
        "text": {"messages": [hello]},
        "text, salted": {"messages": [hello], "cache_salt": "tenant"},
        "texts are parts": {"messages": [_user(_text("One."), _text("Two."))]},
        "turns": {
            "messages": [_says("system", "Be brief."), hello, _says("assistant", "Fine."), hello],
        },
        "assistant last": {"messages": [hello, _says("assistant", "Fine")]},
        "assistant last, in parts": {"messages": [hello, _says("assistant", [_text("Fine")])]},
        "continued": {
            "messages": [hello, _says("assistant", "Fine, and")], "continue_final_message": True,
        },
        "continued, image": {
            "messages": [look, _says("assistant", " It is")], "images": [_image(90, 60)],
            "continue_final_message": True,
        },
        "no content": {"messages": [hello, _says("assistant", None), hello]},
        "role in capitals": {"messages": [_says("SYSTEM", "Be brief."), hello]},
        "unknown role": {"messages": [_says("critic", "Be brief.")]},
        "developer": {"messages": [_says("developer", "Be brief."), hello]},
        "image": {"messages": [look], "images": [_image(640, 480, _FIRST)]},
        "image, salted": {
            "messages": [look], "images": [_image(64, 48, _FIRST)], "cache_salt": "s",
        },
        "image without a hash": {"messages": [look], "images": [_image(200, 100)]},
        "two images": {
            "messages": [_user(_text("A"), _IMAGE, _text("\n\n\nB"), _IMAGE)],
            "images": [_image(100, 300, _FIRST), _image(333, 77, _SECOND)],
        },
        "side by side": {
            "messages": [_user(_IMAGE, _IMAGE)],
            "images": [_image(60, 60, _FIRST), _image(60, 60, _FIRST)],
        },
        "images of two turns": {
            "messages": [look, _says("assistant", "Nice."), look],
            "images": [_image(60, 90, _FIRST), _image(1500, 900, _SECOND)],
        },
        "turned by EXIF": {
            "messages": [look], "images": [_image(280, 56, _FIRST, exif_orientation=6)],
        },
        "one pixel": {"messages": [look], "images": [_image(1, 1, _FIRST)]},
        "thin": {"messages": [look], "images": [_image(900, 4, _FIRST)]},
        "line breaks around": {
            "messages": [_user(_text("A\n\n\n\n\n"), _IMAGE, _text("\n B"))],
            "images": [_image(50, 50, _FIRST)],
        },
        "special tokens in text": {
            "messages": [_user(_IMAGE, _text("a</s>b<|im_end|>c<bos>d<s>e"))],
            "images": [_image(50, 50, _FIRST)],
        },
        "spaces before marks": {"messages": [_says("user", "It 's , he said . Is it ?")]},
        "unicode": {"messages": [_says("user", "e\u0301 \u00e9 \u4f60\u597d \U0001f600")]},
        "placeholders typed without images": {
            "messages": [_says("user", "<|image_pad|> [IMG] <start_of_image> <image>")]
        },
        "placeholders typed beside an image": {
            "messages": [_user(_IMAGE, _text("<|image_pad|> [IMG] <start_of_image>"))],
            "images": [_image(50, 50)],
        },
        "picture in the message": {"messages": [_user(_picture(), _text("Hi"), _picture("auto"))]},
        "picture with a detail": {
            "messages": [_user(_text("A"), _picture("low"), _picture("high"))], "cache_salt": "s",
        },
        "tools": {"messages": [hello], "tools": [_WEATHER]},
        "tools, none to be called": {
            "messages": [hello], "tools": [_WEATHER], "tool_choice": "none",
        },
        "tools, one to be called": {
            "messages": [hello], "tools": [_WEATHER, _CLOCK], "tool_choice": _NAMED,
        },
        "tools, none to be called of none": {"messages": [hello], "tool_choice": "none"},
        "tools, another to be called": {
            "messages": [hello], "tools": [_WEATHER], "tool_choice": _NAMED,
        },
        "tools required, and none": {"messages": [hello], "tool_choice": "required"},
        "tool choice unknown": {"messages": [hello], "tools": [_CLOCK], "tool_choice": "any"},
        "tools are an object": {"messages": [hello], "tools": {}},
        "parameters are a text": {"messages": [hello], "tools": [_with_parameters("x")]},
        "parameters of one type twice": {
            "messages": [hello], "tools": [_with_parameters({"type": ["string", "string"]})],
        },
        "effort": {"messages": [hello], "reasoning_effort": "high"},
        "effort none": {"messages": [hello], "reasoning_effort": "none"},
        "effort none, thinking": {
            "messages": [hello], "reasoning_effort": "none",
            "chat_template_kwargs": {"enable_thinking": True},
        },
        "effort unknown": {"messages": [hello], "reasoning_effort": "huge"},
        "effort in the template kwargs": {
            "messages": [hello], "reasoning_effort": "low",
            "chat_template_kwargs": {"reasoning_effort": "high", "thinking": None},
        },
        "effort null in the template kwargs": {
            "messages": [hello], "chat_template_kwargs": {"reasoning_effort": None},
        },
        "thinking of a user": {"messages": [_user({"type": "thinking", "text": "Hm"})]},
        "thinking twice": {
            "messages": [hello, _says("assistant", [
                {"type": "thinking", "text": "Hm", "thinking": "Hm"}]), hello],
        },
        "continued alone": {
            "messages": [_says("assistant", "Fine")], "continue_final_message": True,
        },
        "system, empty list": {"messages": [_says("system", []), hello]},
        "assistant thinks in parts": {
            "messages": [hello, _says("assistant", [
                {"type": "thinking", "thinking": "Hm"}, _text("Fine.")]), hello],
        },
        "tool call": {
            "messages": [hello, _says("assistant", None, tool_calls=[_CALL]),
                         _says("tool", [_text("sunny"), _text("warm")], tool_call_id="1")],
            "tools": [_WEATHER],
        },
        "tool call, no JSON": {
            "messages": [hello, _says("assistant", "", tool_calls=[
                {"type": "function", "function": {"name": "f", "arguments": "{"}}])],
        },
        "template kwargs": {"messages": [hello], "chat_template_kwargs": {"bos_token": "x"}},
        "template kwargs refused": {"messages": [hello], "chat_template_kwargs": {"tools": []}},
        "other parts": {"messages": [_user({"type": "input_text", "text": "Hi"})]},
    }  # fmt: skip


def _prompts(placeholder: str) -> dict[str, dict[str, Any]]:
    one = [_image(300, 200, _FIRST)]
    return {
        "prompt": {"prompt": "Hello there, how are you today, and what do you do?"},
        "prompt with BOS": {"prompt": "<s><bos>Hello there"},
        "prompt, image": {"prompt": f"A {placeholder} B", "images": one},
        "prompt with BOS, image": {"prompt": f"<s>{placeholder}\nB", "images": one},
        "prompt with other BOS, image": {"prompt": f"<bos>{placeholder}\nB", "images": one},
        "prompt, too many placeholders": {"prompt": placeholder * 2, "images": one},
        "prompt, thin image": {"prompt": placeholder, "images": [_image(2000, 3, _FIRST)]},
        "IDs": {"prompt_token_ids": list(range(20, 60))},
    }
