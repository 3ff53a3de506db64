"""The requests whose answers are kept in this directory, for every small model alike."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from mmroute.model_directory import EMBEDDED_MODEL

Case = dict[str, Any]

# What a user may type for an image; each model gets its own.
PLACEHOLDERS = {
    "small-qwen2-vl": "<|image_pad|>",
    "small-qwen2.5-vl": "<|image_pad|>",
    "small-qwen3-vl": "<|image_pad|>",
    "small-llava-1.5": "<image>",
    "small-llava-next": "<image>",
    "small-llava-onevision": "<image>",
    "small-pixtral-hf": "[IMG]",
    "small-mistral3": "[IMG]",
    "small-phi-3-vision": "<|image_1|>",
    "small-phi-3.5-vision": "<|image_1|>",
    "small-gemma-3": "<start_of_image>",
    "pixtral-12b-2409": "[IMG]",
}
# Families whose small models only the conformance test runs on.
FAMILY_PLACEHOLDERS: dict[str, str | None] = {
    "small-idefics3": "<image>",
    "small-smolvlm": "<image>",
    "small-granite4-vision": "<image>",
    "small-lfm2-vl": "<image>",
    "small-hunyuan-vl": "<image_start><image><image_end>",
    "small-emu3": "<image>",
    "small-minicpm-v-4.6": "<|image_pad|>",
    "small-muse-glimmer": "<|patch|>",
    "small-glm-4.1v": "<|image|>",
    "small-minimax-m3": "]<]image[>[",
    "small-qwen3.5": "<|image_pad|>",
    "small-gemma-4": "<|image|>",
    "small-gemma-4-unified": "<|image|>",
    "small-gemma-3n": "<image_soft_token>",
    "small-internvl": "<IMG_CONTEXT>",
    "small-llama-4": "<|image|>",
    "small-deepseek-ocr": "<image>",
    "small-deepseek-ocr-2": "<image>",
    "small-step-3-vl": "<im_patch>",
    "small-command-a-vision": "<|IMG_PATCH|>",
    "small-qwen3-omni": "<|image_pad|>",
    "small-qwen2.5-omni": "<|IMAGE|>",
    "small-kimi-k2.5": "<|media_pad|>",
    "small-kimi-k3": "<|kimi_image_placeholder|>",
    "small-paddleocr-vl": "<|IMAGE_PLACEHOLDER|>",
    "small-minicpm-v-4.7": "<|image_pad|>",
    "small-internvl-chat": "<image>",
    "small-nemotron-nano-vl": "<image>",
    "small-nemotron-omni": "<image>",
    "small-dots-ocr": "<|imgpad|>",
    "small-mistral-large-3": "[IMG]",
    "small-exaone-4.5": "<|image_pad|>",
    "small-hyperclovax-vision-v2": "<|IMAGE_PAD|>",
    "small-qwen4-exp": "<|image_pad|>",
    "small-cosmos3": "<|image_pad|>",
    "small-cosmos3-edge": "<|image_pad|>",
    "small-opencua": "<|media_placeholder|>",
    "small-ovis-2.5": "<image>",
    "small-ovis-2.6": "<image>",
    "small-deepseek-vl2": "<image>",
    "small-unlimited-ocr": "<image>",
    "small-deepseek-v4-vision": "<\uff5cdeepseek_image\uff5c>",
    "small-deepseek-v4.1": "<\uff5cdeepseek_image\uff5c>",
    "small-qianfan-ocr": "<image>",
    "small-skywork-r1v": "<image>",
    "small-eagle-2.5": "<image>",
    "small-llama-nemotron-nano-vl": "<image>",
    "small-step-vl": "<im_patch>",
    "small-lighton-ocr": "<|image_pad|>",
    "small-aria": "<|img|>",
    "small-glm-4v": "<|begin_of_image|><|endoftext|><|end_of_image|>",
    "small-bagel": "<|image_pad|>",
    "small-granite-speech": None,
    "small-granite-speech-plus": None,
    "small-glm-asr": None,
    "small-audio-flamingo-3": None,
    "small-vibevoice-asr": None,
    "small-fun-asr": None,
    "small-fire-red-asr-2": None,
    "small-paligemma": "<image>",
    "small-blip-2": "<image>",
    "small-openvla": "<image>",
    "small-muse-spark": "<|patch|>",
    "small-mimo-v2-omni": "<|image_pad|>",
    "small-dots3-note": "<|img|><|imgpad|><|endofimg|>",
    "small-ovis": "<image>",
    "small-cohere-compass": "<|IMAGE_PAD|>",
    "small-nvlm-d": "<image>\n",
    "small-isaac": "<image>",
    "small-moondream3": "<|endoftext|><image>",
    "small-h2ovl": "<image>",
    "small-alpamayo-2-super": "<|image_pad|>",
    "small-hyperclovax-vision-v2-code": "<|IMAGE_PAD|>",
    "small-keye": "<|image_pad|>",
    "small-kimi-vl": "<|media_pad|>",
    "small-phi-4-multimodal": "<|image_1|>",
    "small-minicpm-v-2.6": "(<image>./</image>)",
    "small-minicpm-v-4.5": "(<image>./</image>)",
    "small-minicpm-o-2.6": "(<image>./</image>)",
    "small-molmo2": "<|image|>",
    "small-inkling-items": "<|content_image|>",
    "small-fun-audio-chat": None,
    "small-moss-audio": None,
    "small-moss-audio-timed": None,
    "small-moss-transcribe-diarize": None,
    "small-midashenglm": None,
    # Text only; the chats of the last are refused without the engine's date.
    "small-llama": None,
    "small-deepseek-v3.2": None,
    "small-deepseek-v4": None,
    "small-inkling": None,
    "small-qwen3-next": None,
    "small-gpt-oss": None,
}
# Families that take videos or audio, of which they have cases as well: by numbers, or by file.
FAMILY_MEDIA: dict[str, tuple[str, ...]] = {
    "small-exaone-4.5": ("video file",),
    "small-hyperclovax-vision-v2": ("video file",),
    "small-hyperclovax-vision-v2-code": ("video file",),
    "small-qwen4-exp": ("video file",),
    "small-cosmos3": ("video file",),
    "small-ovis-2.5": ("video",),
    "small-ovis-2.6": ("video",),
    "small-granite-speech": ("audio",),
    "small-granite-speech-plus": ("audio",),
    "small-glm-asr": ("audio",),
    "small-audio-flamingo-3": ("audio",),
    "small-vibevoice-asr": ("audio",),
    "small-fun-asr": ("audio",),
    "small-fire-red-asr-2": ("audio",),
    "small-muse-spark": ("video", "audio"),
    "small-mimo-v2-omni": ("video", "audio"),
    "small-dots3-note": ("audio",),
    "small-minicpm-v-2.6": ("video",),
    "small-minicpm-v-4.5": ("video",),
    "small-phi-4-multimodal": ("audio",),
    "small-minicpm-o-2.6": ("video", "audio"),
    "small-fun-audio-chat": ("audio",),
    "small-moss-audio": ("audio",),
    "small-moss-audio-timed": ("audio",),
    "small-moss-transcribe-diarize": ("audio",),
    "small-midashenglm": ("audio",),
    "small-inkling-items": ("audio", "images and audio"),
}

_SIZES = (
    (1, 1), (3, 500), (28, 28), (55, 56), (100, 100), (126, 154), (200, 196), (333, 777),
    (336, 336), (337, 671), (630, 1106), (640, 480), (1000, 5), (1023, 1025), (1400, 7),
    (1407, 7), (1500, 500), (720, 1280), (2049, 3), (3000, 20),
    (2305, 1), (1, 1010), (3081, 2),
)  # fmt: skip
_LONGEST_VIDEO = 4000  # characters of a request, so that the files stay small
# Width, height, frames, and frames a second: 100 divided by them is a GIF's delay.
_VIDEOS = (
    (64, 48, 1, 25), (64, 48, 2, 1), (100, 33, 5, 4), (30, 200, 31, 10), (320, 240, 33, 20),
    (48, 48, 64, 25),
)  # fmt: skip
# Long, large and thin ones, at the limits of frames and of volumes.
_FURTHER_VIDEOS = (
    (640, 360, 150, 25), (320, 240, 301, 10), (1280, 720, 17, 2), (1000, 7, 8, 4),
    (64, 48, 3, 50), (64, 48, 100, 1),
)  # fmt: skip
_VIDEO_KWARGS: tuple[dict[str, Any], ...] = (
    {"fps": 1},
    {"num_frames": 6},
    {"min_frames": 12},
    {"max_frames": 5},
    {"max_pixels": 65536},
    {"size": {"shortest_edge": 4096, "longest_edge": 65536}},
    {"videos_kwargs": {"size": {"shortest_edge": 4096, "longest_edge": 65536}}},
    {"videos_kwargs": {"fps": 1.0}},
    {"unknown": 3},
)
_VIDEO_READING: tuple[dict[str, Any], ...] = (
    {"num_frames": 8},
    {"num_frames": -1},
    {"fps": 1},
    {"fps": 3, "num_frames": 100},
)
# Samples and their rate.
_RECORDINGS = (
    (1, 16000), (160, 16000), (399, 16000), (400, 16000), (641, 16000), (16000, 16000),
    (16161, 16000), (44101, 44100), (8081, 8000), (480001, 16000), (1000000, 16000),
)  # fmt: skip
# At the rate of the model, so that nothing is resampled.
_OF_30_SECONDS = tuple(one for one in _RECORDINGS if one[1] == 16000 and one[0] <= 30 * 16000)
_FAMILY_KWARGS: tuple[dict[str, Any], ...] = (
    {"unknown": 3},
    {"do_image_splitting": False},
    {"size": {"longest_edge": 256}},
    {"size": {"shortest_edge": 4096, "longest_edge": 65536}},
    {"max_image_tokens": 9},
    {"max_tiles": 3},
    {"max_pixels": 65536},
)
_HYPERCLOVAX_KWARGS: tuple[dict[str, Any], ...] = (
    {"merge_size": 1},
    {"merge_size": 3},
    {"patch_size": 7},
    {"images_kwargs": {"max_pixels": 50176}},
    {"images_kwargs": []},
    {"processor_cls": None},
)
# Arguments that a family's own processor reads, or fails on.
_OWN_KWARGS: dict[str, tuple[dict[str, Any], ...]] = {
    "small-llama-nemotron-nano-vl": (
        {"max_dynamic_patch": 3},
        {"min_dynamic_patch": 4},
        {"dynamic_image_size": False},
        {"dynamic_image_size": False, "max_num_tiles": 2},
        {"videos": []},
        {"return_tensors": 2},
        {"images_kwargs": {"size": []}},
    ),
    "small-hyperclovax-vision-v2": _HYPERCLOVAX_KWARGS,
    "small-hyperclovax-vision-v2-code": _HYPERCLOVAX_KWARGS,
    "small-opencua": ({"return_tensors": "np"}, {"tokenizer": 1}),
    "small-minicpm-v-2.6": ({"images_kwargs": {"size": []}},),
    "small-cosmos3-edge": (
        {"images_kwargs": {"max_pixels": 65536}},
        {"images_kwargs": {"size": {"shortest_edge": 3136, "longest_edge": 50176}}},
        {"videos_kwargs": {"min_frames": 4}},
        {"videos_kwargs": {"patch_size": 16}},
    ),
    "small-internvl": (
        {"audio_kwargs": {"x": []}},
        {"audio_kwargs": {"x": 1}},
        {"images_kwargs": {"image_mean": [0.5, 0.5, 0.5]}},
        {"images_kwargs": {"crop_size": {"height": 32, "width": 32}}},
        {"videos_kwargs": {"size": {"height": 32, "width": 32}}},
    ),
    "small-minimax-m3": ({"images_kwargs": {"temporal_patch_size": 1003520}},),
    "small-hunyuan-vl": ({"resize": 1}, {"return_text_replacement_offsets": True}),
    "small-glm-asr": ({"audio_token_id": "x"},),
    "small-emu3": (
        {"min_pixels": 1},
        {"spatial_factor": 5},
        {"do_resize": False},
        {"images_kwargs": {"do_resize": False}},
        {"images_kwargs": {"min_pixels": 1}},
        {"do_pad": False},
        {"return_for_image_generation": True},
    ),
    "small-vibevoice-asr": (
        {"pad_to_multiple_of": 1600},
        {"audio_kwargs": {"pad_to_multiple_of": 7000, "sampling_rate": 24000}},
        {"sampling_rate": 16000},
        {"acoustic_tokenizer_chunk_size": "x"},
    ),
}
_TEXTS = (
    "  two leading,\ttab,\r\nCRLF,\n\n\nthree lines, trailing   ",
    "e\u0301 \u1112\u1161\u11ab ﬁ ½ ｱ",
    "👨\u200d👩\u200d👧 🏳️\u200d🌈 🤷🏽\u200d♀️",
    "</s><s> <|im_end|> <|end|> x <|assistant|>\n[/INST] <end_of_turn>",
    "{{ x }} {% if %} <b>&amp;</b>",
    "\n\nx\n\n",
    "what is in this image and the picture?",
)
_CALL = {
    "id": "abcdef123",
    "type": "function",
    "function": {"name": "f", "arguments": '{"x": "<ü>", "y": [1, 2.50]}'},
}
_TOOL = {"type": "function", "function": {"name": "f", "description": "a <tool>"}}
_KWARGS: tuple[dict[str, Any], ...] = (
    {"unknown": 3},
    {"max_pixels": 50176},
    {"min_pixels": 12544, "max_pixels": 156800},
    {"size": {"longest_edge": 100}},
    {"size": {"shortest_edge": 3136, "longest_edge": 50176}},
    {"num_crops": 2},
    {"num_crops": 0},
    {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 64},
    {"do_normalize": False, "unknown": {"x": 1}},
)
IMAGE = {"type": "image"}
VIDEO = {"type": "video"}
AUDIO = {"type": "audio"}


def text(value: str) -> dict[str, Any]:
    """A text part."""
    return {"type": "text", "text": value}


def user(*parts: Any) -> dict[str, Any]:
    """A user message."""
    return {"role": "user", "content": parts[0] if isinstance(parts[0], str) else list(parts)}


def case(case_id: str, tag: str, **request: Any) -> Case:
    """One case."""
    return {"id": case_id, **request, "tags": [tag]}


def sizes(*pairs: tuple[int, int]) -> list[dict[str, int]]:
    """Image sizes."""
    return [{"width": width, "height": height} for width, height in pairs]


def cases(model: str) -> Iterator[Case]:
    """All cases of one model."""
    placeholder = PLACEHOLDERS[model]
    yield from _sizes()
    yield from _texts()
    yield from _conversations()
    yield from _placeholders(placeholder)
    yield from _requests(() if model == EMBEDDED_MODEL else _KWARGS)  # of which it takes none


def family_cases(model: str) -> Iterator[Case]:
    """What a family does of its own: sizes, placeholders, processor options; or texts alone."""
    placeholder = FAMILY_PLACEHOLDERS[model]
    if placeholder is None and model in FAMILY_MEDIA:
        yield from _audio()
        for i, kwargs in enumerate(_OWN_KWARGS.get(model, ())):
            yield _recording(f"kwargs-{i}", *_RECORDINGS[-1], mm_processor_kwargs=kwargs)
        return
    if placeholder is None:
        yield from _texts_alone(chats=model != "small-gpt-oss")
        return
    yield from _sizes()
    yield from _placeholders(placeholder)
    image: Case = {"messages": [user(IMAGE, text("q"), IMAGE)]}
    for i, kwargs in enumerate((*_FAMILY_KWARGS, *_OWN_KWARGS.get(model, ()))):
        images = sizes((300, 200), (150, 700))
        yield case(f"kwargs-{i}", "kwargs", **image, images=images, mm_processor_kwargs=kwargs)
    for media in FAMILY_MEDIA.get(model, ()):
        yield from _MEDIA_CASES[media]()


# By the models whose arguments of videos are covered. LLaVA-OneVision first enlarges frames to such
# a size, which takes gigabytes.
_ARGUMENTS = {
    **dict.fromkeys(
        ("small-qwen2-vl", "small-qwen2.5-vl", "small-qwen3-vl", "small-qwen3.5", "small-internvl"),
        _VIDEO_KWARGS,
    ),
    "small-llava-onevision": tuple(k for k in _VIDEO_KWARGS if "size" not in json.dumps(k)),
}


def media_cases(model: str, modalities: Collection[str]) -> Iterator[Case]:
    """Videos and audio for a model whose template writes them."""
    if "video" in modalities:
        yield from _videos((*_VIDEOS, *_FURTHER_VIDEOS))
        video = _video(200, 120, 40, 5)
        chat: Case = {"messages": [user(VIDEO, text("b"))], "videos": [video]}
        for i, kwargs in enumerate(_ARGUMENTS.get(model, ())):
            yield case(f"video-kwargs-{i}", "video", **chat, mm_processor_kwargs=kwargs)
        for i, reading in enumerate(_VIDEO_READING if model in _ARGUMENTS else ()):
            yield case(f"video-reading-{i}", "video", **chat, media_io_kwargs={"video": reading})
        yield case("no-video", "video", messages=[user("a")])
    if "audio" in modalities:
        yield from _recordings(_OF_30_SECONDS)


def _video_files() -> Iterator[Case]:
    from mmroute.lab.parity.media_cases import video_cases  # only to make vectors

    for one in video_cases():
        if len(json.dumps(one.request)) < _LONGEST_VIDEO:
            yield case(one.id, "video", **one.request)


def _video(width: int, height: int, frames: int, fps: int) -> dict[str, int]:
    return {"width": width, "height": height, "num_frames": frames, "fps": fps}


def _videos(videos: Sequence[tuple[int, int, int, int]] = _VIDEOS) -> Iterator[Case]:
    for width, height, frames, fps in videos:
        video, chat = _video(width, height, frames, fps), [user(text("a"), VIDEO, text("b"))]
        yield case(f"video-{frames}-at-{fps}", "video", messages=chat, videos=[video])
    video = _video(*_VIDEOS[-1])
    both = [user(IMAGE, VIDEO, IMAGE, text("b"))]
    two = sizes((60, 40), (200, 300))
    yield case("video-and-images", "video", messages=both, images=two, videos=[video])
    yield case("two-videos", "video", messages=[user(VIDEO, VIDEO)], videos=[video, video])


def _recordings(recordings: Sequence[tuple[int, int]]) -> Iterator[Case]:
    for samples, rate in recordings:
        yield _recording(f"audio-{samples}-at-{rate}", samples, rate)
    three = [{"num_samples": n, "sampling_rate": 16000} for n in (8000, 32000, 9999)]
    turns = [user(AUDIO, text("x"), AUDIO), {"role": "assistant", "content": "a"}, user(AUDIO)]
    yield case("three-audios", "audio", messages=turns, audios=three)
    yield case("no-audio", "audio", messages=[user("a")])


def _recording(name: str, samples: int, rate: int, **more: Any) -> Case:
    audio = {"num_samples": samples, "sampling_rate": rate}
    chat = [user(text("a"), AUDIO, text("b"))]
    return case(name, "audio", messages=chat, audios=[audio], **more)


def _audio() -> Iterator[Case]:
    yield from _recordings(_RECORDINGS)
    unknown = {"unknown": 3}
    yield _recording("audio-and-unknown", *_RECORDINGS[-1], mm_processor_kwargs=unknown)


def _images_and_audio() -> Iterator[Case]:
    """Items of both kinds in messages of each role, and what is typed for them."""
    images = sizes((300, 200), (40, 100), (60, 40))
    audios = [{"num_samples": n, "sampling_rate": 16000} for n in (8000, 32000)]
    assistant = {"role": "assistant", "content": [IMAGE, text("A cat.")]}
    tool = {"role": "tool", "tool_call_id": "abcdef123", "content": [text("r1"), text("r2")]}
    called = {"role": "assistant", "content": [text("x"), AUDIO], "tool_calls": [_CALL]}
    system = {"role": "system", "content": [text("s"), AUDIO]}
    developer = {"role": "developer", "content": [IMAGE, text("d")], "tools": [_TOOL]}
    chats: dict[str, list[Any]] = {
        "mixed": [user(AUDIO, IMAGE, text("a"), IMAGE, AUDIO, text("b"), IMAGE)],
        "roles": [system, developer, user(text("q"), IMAGE), assistant, user(AUDIO)],
        "tools": [user(IMAGE, text("q")), called, tool, user(IMAGE, IMAGE, AUDIO)],
        "tool-image": [user("q"), called, {**tool, "content": [text("r"), IMAGE]}, user(AUDIO)],
        "typed-twice": [user(IMAGE, text("<|content_image|><|content_image|>"))],
        "typed-audio": [user(text("<|content_audio_input|> a"), AUDIO)],
        "typed-audio-alone": [user("a<|content_audio_input|>"), user("b")],
        "typed-elsewhere": [user("<|content_image|>"), user(IMAGE, text("a"))],
        "typed-fill": [user(text("<|unused_200054|><|unused_200053|>"), IMAGE, AUDIO)],
    }
    for name, messages in chats.items():
        found = str(messages)
        items = {"images": images[: found.count(str(IMAGE))]}
        if count := found.count(str(AUDIO)):
            items["audios"] = (audios * 2)[:count]
        yield case(f"items-{name}", "conversation", messages=messages, **items)
    for n, ids in enumerate(([200005, 7, 200020], [200020, 200005, 200043], [200005, 200005])):
        yield case(f"items-ids-{n}", "token-ids", prompt_token_ids=ids, images=images[:1])
    scale: tuple[dict[str, Any], ...] = (
        {"rescale_image_frac": 1.0},
        {"rescale_image_frac": 3, "rescale_image_max_upscaled_long_edge": 1000},
        {"rescale_image_max_upscaled_long_edge": 100},
        {"rescale_image_frac": "2"},
        {"audio_token_duration_s": 0.0301},
        {"num_dmel_bins": "x"},
        {"unknown": {"x": [1]}},
    )
    for n, kwargs in enumerate(scale):
        chat: Case = {"messages": [user(IMAGE, text("q"), AUDIO, IMAGE)], "images": images[:2]}
        audio = {"audios": audios[:1], "mm_processor_kwargs": kwargs}
        yield case(f"items-kwargs-{n}", "kwargs", **chat, **audio)


_MEDIA_CASES = {
    "video": _videos,
    "video file": _video_files,
    "audio": _audio,
    "images and audio": _images_and_audio,
}


def _texts_alone(*, chats: bool) -> Iterator[Case]:
    for one in (*_texts(), *_conversations(), *_requests(())):
        if not one.get("images") and (chats or "messages" not in one):
            yield one
    if chats:
        yield case("tools", "api", messages=[user("q")], tools=[_TOOL])
        image = [user(IMAGE, text("q"))]
        yield case("image", "conversation", messages=image, images=sizes((60, 40)))


def _sizes() -> Iterator[Case]:
    for size in _SIZES:
        name = "x".join(map(str, size))
        yield case(
            f"size-{name}", "size", messages=[user(IMAGE, text("What?"))], images=sizes(size)
        )


def _texts() -> Iterator[Case]:
    one = sizes((60, 40))
    for i, words in enumerate(_TEXTS):
        around = [user(text(words), IMAGE, text(words))]
        yield case(f"text-{i}", "text", messages=[user(words)])
        yield case(f"text-{i}-around", "text", messages=around, images=one)
        for special in (True, False):
            name = f"prompt-{i}-{special}"
            yield case(name, "completion", prompt=words, add_special_tokens=special)


def _conversations() -> Iterator[Case]:
    a, b = (90, 30), (200, 300)
    assistant = {"role": "assistant", "content": "A cat."}
    system = {"role": "system", "content": "Be brief."}
    called = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
    not_json = _CALL | {"function": {"name": "f", "arguments": "not JSON"}}
    answered = {"role": "tool", "tool_call_id": "abcdef123", "content": [text("r1"), text("r2")]}
    header = {"role": "system", "content": "x-anthropic-billing-header: 1\nreal"}
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    chats: dict[str, list[Any]] = {
        "adjacent": [user(IMAGE, IMAGE, IMAGE)],
        "turns": [system, user(IMAGE, text("a")), assistant, user(text("b"), IMAGE)],
        "developer": [{"role": "developer", "content": "d"}, user(text("b"), IMAGE)],
        "system-late": [user("a"), assistant, system, user(IMAGE, text("x"))],
        "system-image": [{"role": "system", "content": [IMAGE]}, user("a")],
        "tool-call": [user(IMAGE, text("q")), called, answered],
        "bad-arguments": [user("q"), called | {"tool_calls": [not_json]}, answered],
        "reasoning": [user("q"), assistant | {"reasoning_content": "hm"}, user("z")],
        "refusal": [user("q"), refusal, user("z")],
        "null-content": [user("q"), {"role": "assistant", "content": None}, user("z")],
        "no-content": [{"role": "user"}],
        "null-user": [{"role": "user", "content": None}],
        "empty-part": [user(text(""), IMAGE, text(""))],
        "unknown-part": [user({"type": "hologram"})],
        "billing-header": [header, user("x")],
        "empty": [],
    }
    for name, messages in chats.items():
        images = sizes(*[a, b, a][: _image_parts(messages)])
        yield case(name, "conversation", messages=messages, images=images)
    twelve = sizes(*[(40 + i, 30) for i in range(12)])
    many = [user(*[IMAGE] * 12, text("x"))]
    yield case("many-images", "conversation", messages=many, images=twelve)


def _image_parts(messages: list[Any]) -> int:
    contents = (message.get("content") for message in messages)
    return sum(part == IMAGE for c in contents if isinstance(c, list) for part in c)


def _placeholders(placeholder: str) -> Iterator[Case]:
    one, two = sizes((60, 40)), sizes((60, 40), (40, 100))
    typed = {
        "before": [user(text(f"{placeholder} a"), IMAGE)],
        "after": [user(IMAGE, text(f"a {placeholder}"))],
        "in-assistant": [user("q"), {"role": "assistant", "content": placeholder}, user(IMAGE)],
    }
    for name, messages in typed.items():
        yield case(f"typed-{name}", "placeholder", messages=messages, images=one)
    yield case("typed-alone", "placeholder", messages=[user(placeholder)])
    numbered = placeholder.replace("1", "2") if "_1" in placeholder else placeholder
    prompts = {
        "one": (f"A {placeholder} b", one),
        "glued": (f"x{placeholder}{numbered}y", two),
        "reversed": (f"{numbered} and {placeholder}\n", two),
        "too-many": (f"{placeholder} {placeholder} {placeholder}\n", one),
        "too-few": (f"{placeholder} only", two),
        "none": ("nothing here", one),
        "typed-bos": (f"<s>{placeholder}<s> x", one),
    }
    for name, (prompt, images) in prompts.items():
        for special in (True, False):
            request = {"prompt": prompt, "images": images, "add_special_tokens": special}
            yield case(f"prompt-{name}-{special}", "placeholder", **request)


def _requests(arguments: Sequence[dict[str, Any]]) -> Iterator[Case]:
    image: Case = {"messages": [user(IMAGE, text("q"))], "images": sizes((300, 200))}
    final = [*image["messages"], {"role": "assistant", "content": "It is a  "}]
    keep_open = {"add_generation_prompt": False, "continue_final_message": True}
    yield case("no-generation-prompt", "api", **image, add_generation_prompt=False)
    yield case("continue", "api", messages=final, images=image["images"], **keep_open)
    yield case("continue-user", "api", messages=[user("Hello wor")], **keep_open)
    yield case("continue-and-generate", "api", **image, continue_final_message=True)
    yield case("tools", "api", **image, tools=[_TOOL])
    yield case("tools-empty", "api", **image, tools=[])
    yield case("unknown-variable", "api", **image, chat_template_kwargs={"x": 1})
    yield case("chat-special", "api", **image, add_special_tokens=True)
    for i, kwargs in enumerate(arguments):
        yield case(f"kwargs-{i}", "kwargs", **image, mm_processor_kwargs=kwargs)
    yield case("ids", "token-ids", prompt_token_ids=[5, 6, 7])
    yield case("ids-empty", "token-ids", prompt_token_ids=[])
    yield case("ids-negative", "token-ids", prompt_token_ids=[-1])
    yield case("ids-last", "token-ids", prompt_token_ids=[5, 639])
    yield case("ids-outside", "token-ids", prompt_token_ids=[5, 200000])
