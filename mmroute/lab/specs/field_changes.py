"""Changes of a model's files, each time at one field, name, null or place."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Files = Mapping[str, Any]
"""Name -> JSON value, or the text of a template."""

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
IMAGE, VIDEO, PROCESSOR = (
    "preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json",
)  # fmt: skip
TEMPLATE, TEMPLATE_JSON = "chat_template.jinja", "chat_template.json"
READ: Final = (IMAGE, VIDEO, PROCESSOR, TEMPLATE, TEMPLATE_JSON, TOKENIZER, CONFIG)
"""The files that are changed, in the order in which they are."""

NESTED: Final = {
    "image_processor": IMAGE,
    "feature_extractor": IMAGE,
    "video_processor": VIDEO,
}
"""Where transformers 5 saves a file within processor_config.json -> the file."""

# What a name is changed or added to where its value says nothing of a useful other one.
_SAMPLES: Final[Mapping[str, Any]] = {
    "min_pixels": 65536, "max_pixels": 131072, "do_resize": False, "do_center_crop": True,
    "do_pad": False, "do_image_splitting": False, "do_pan_and_scan": True,
    "crop_to_patches": False, "use_thumbnail": False, "size": {"height": 192, "width": 192},
    "crop_size": {"height": 96, "width": 96}, "max_image_size": {"longest_edge": 96},
    "image_seq_len": 5, "image_seq_length": 5, "num_additional_image_tokens": 3,
    "patch_size": 7, "merge_size": 4, "temporal_patch_size": 1, "fps": 1, "num_frames": 4,
    "min_frames": 8, "max_frames": 4, "do_sample_frames": False, "max_patches": 3,
    "min_patches": 2, "downsample_factor": 4, "resample": 0, "max_soft_tokens": 70,
    "vision_feature_select_strategy": "full", "hop_length": 320, "sampling_rate": 8000,
    "chunk_length": 5, "n_samples": 80000, "feature_size": 64, "processor_class": "LlavaProcessor",
    "image_processor_type": "CLIPImageProcessor", "return_attention_mask": False,
}  # fmt: skip
_CLASSES: Final = {
    "ImageProcessor": ("Qwen2VLImageProcessor", "CLIPImageProcessor", "SiglipImageProcessor"),
    "VideoProcessor": ("Qwen2VLVideoProcessor", "Qwen3VLVideoProcessor"),
    "FeatureExtractor": ("WhisperFeatureExtractor", "Gemma3nAudioFeatureExtractor"),
    "Processor": ("LlavaProcessor", "Qwen2VLProcessor"),
    "Tokenizer": ("LlamaTokenizer", "Qwen2Tokenizer", "PreTrainedTokenizerFast"),
}
# The names of one field in old and new files.
_NAMES: Final = (
    ("image_processor_type", "feature_extractor_type"), ("min_pixels", "shortest_edge"),
    ("max_pixels", "longest_edge"), ("image_token_id", "image_token_index"),
    ("video_token_id", "video_token_index"), ("audio_token_id", "audio_token_index"),
    ("rope_scaling", "rope_parameters"), ("torch_dtype", "dtype"), ("text_config", "llm_config"),
    ("image_seq_len", "image_seq_length"), ("video_processor_type", "image_processor_type"),
    ("tokenizer_class", "backend"), ("additional_special_tokens", "extra_special_tokens"),
)  # fmt: skip
_SIZES: Final = ("size", "crop_size", "max_image_size", "pad_size")
_TEXT_PARTS: Final = ("text_config", "llm_config", "language_config", "decoder_config")
_NOT_INSIDE: Final = ("auto_map", "added_tokens_decoder", "quantization_config", "id2label")
_DEEPEST: Final = 4
_LONGEST: Final = 48


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a directory."""

    file: str  # the file that differs
    field: str  # the path of the field in it; empty for the whole file
    what: str  # the change in words
    files: Files  # the new contents of the files that differ; None for a file that is not there


def changes(files: Files, known: Files, seed: int = 0) -> Iterator[Change]:
    """All changes of a model's files."""
    for file in READ:
        content = files.get(file)
        draw = random.Random(f"{seed} {file}")
        if isinstance(content, Mapping):
            yield from _of_fields(file, content, known.get(file, {}), draw)
        elif content is None and known.get(file):
            for name, value in _added(known[file], {}, draw):
                yield Change(file, name, f"file with {_short(value)} alone", {file: {name: value}})
        if content is not None:
            yield Change(file, "", "file dropped", {file: None})
            if isinstance(content, Mapping):
                yield Change(file, "", "file emptied", {file: {}})
    yield from _places(files, random.Random(seed))
    yield from _in_other_file(files)
    yield from _templates(files)


def added(files: Files, named: Files, seed: int = 0) -> Iterator[Change]:
    """The changes of a model's files that add a field, of those that are named by file."""
    draw = random.Random(seed)
    for file, fields in named.items():
        for name, value in _added(fields, files[file], draw) if file in files else ():
            content = {file: _with(files[file], (name,), value)}
            yield Change(file, name, f"added {_short(value)}", content)


def _of_fields(file: str, content: Files, known: Files, draw: random.Random) -> Iterator[Change]:
    for path, inside, in_text in _objects(content):
        for name, value in inside.items():
            field = ".".join((*path, name))

            def other(what: str, *new: Any, at: tuple[str, ...] = (*path, name)) -> Change:
                return Change(file, ".".join(at), what, {file: _with(content, at, *new)})

            yield other("dropped")
            if value is not None:
                yield other("null", None)
            others = list(_others(name, value, draw))
            for new in others[: 1 if in_text else None]:
                yield other(f"{_short(value)} -> {_short(new)}", new)
            for new_name in _other_names(name, inside):
                renamed = _with(_with(content, (*path, name)), (*path, new_name), value)
                yield Change(file, field, f"renamed {new_name}", {file: renamed})
        yield from (
            Change(file, ".".join((*path, name)), f"added {_short(value)}",
                   {file: _with(content, (*path, name), value)})
            for name, value in _added(_at(known, path), inside, draw, nulls=not in_text)
        )  # fmt: skip


def _objects(content: Files, path: tuple[str, ...] = ()) -> Iterator[tuple[Any, Files, bool]]:
    """The object and those in it: path, fields, and whether they are the language model's."""
    yield path, content, any(name in _TEXT_PARTS for name in path)
    for name, value in content.items():
        if isinstance(value, Mapping) and name not in _NOT_INSIDE and len(path) < _DEEPEST:
            yield from _objects(value, (*path, name))


def _others(name: str, value: Any, draw: random.Random) -> Iterator[Any]:
    """Other values of a field."""
    if name in _SIZES:
        yield from (form for form in _forms(value) if form != value)
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        token = name.endswith(("_id", "_index", "_ids"))
        yield from (value - 1,) if token else dict.fromkeys(
            n for n in (2 * value, draw.randint(1, max(2 * value, 3))) if n != value
        )  # fmt: skip
    elif isinstance(value, float):
        yield 2 * value or 1.0
    elif isinstance(value, str):
        yield from _other_texts(name, value, draw)
    elif isinstance(value, list):
        if value and all(type(one) is int for one in value):
            yield from ([2 * one for one in value], value[:-1])
        yield from ([],) if value else ()
    elif isinstance(value, Mapping):
        yield from ({},) if value else ()
    elif name in _SAMPLES:
        yield _SAMPLES[name]


def _other_texts(name: str, value: str, draw: random.Random) -> Iterator[str]:
    plain = value.removesuffix("Fast")
    kind = next((kind for kind in _CLASSES if plain.endswith(kind)), None)
    if kind is None:
        yield _SAMPLES[name] if name in _SAMPLES and _SAMPLES[name] != value else f"{value}x"
        return
    yield plain if plain != value else f"{value}Fast"
    yield draw.choice([one for one in _CLASSES[kind] if one != plain])


def _forms(value: Any) -> Iterator[Any]:
    """A size in all forms of old and new files."""
    numbers = [*value.values()] if isinstance(value, Mapping) else [value]
    side = next((n for n in numbers if isinstance(n, int) and not isinstance(n, bool)), None)
    if side is not None:
        yield from (
            side,
            {"height": side, "width": side},
            {"shortest_edge": side},
            {"longest_edge": side},
            {"shortest_edge": side // 2, "longest_edge": side},
        )


def _other_names(name: str, inside: Files) -> Iterator[str]:
    for pair in _NAMES:
        if name in pair:
            yield from (other for other in pair if other != name and other not in inside)


def _added(
    known: Any, inside: Files, draw: random.Random, *, nulls: bool = True
) -> Iterator[tuple[str, Any]]:
    """The known fields that are not there, with a value that is not the one in force, and null."""
    for name, value in known.items() if isinstance(known, Mapping) else ():
        if name not in inside:
            new = next(_others(name, value, draw), None)
            if new is not None:
                yield name, new
            if nulls and value is not None:
                yield name, None


def _places(files: Files, draw: random.Random) -> Iterator[Change]:
    """Files where other versions of transformers save them, and two files that differ."""
    for part, file in NESTED.items():
        own: Any = files.get(file)
        nested: Any = files.get(PROCESSOR, {}).get(part)
        if (own is None) is (nested is None) or not _is_of(part, own or nested):
            continue
        inside = {PROCESSOR: files.get(PROCESSOR, {}) | {part: own}}
        if own is None:
            rest = {name: value for name, value in files[PROCESSOR].items() if name != part}
            yield Change(PROCESSOR, part, f"moved to {file}", {PROCESSOR: rest, file: nested})
        else:
            yield Change(file, "", f"moved to {PROCESSOR}:{part}", {file: None, **inside})
        for name, value in (own or nested).items():
            new = next(_others(name, value, draw), None)
            what = f"{_short(value)} -> {_short(new)} in a second place"
            if new is not None and own is None:
                yield Change(file, name, what, {file: {**nested, name: new}})
            elif new is not None:
                second = {**inside[PROCESSOR], part: {**own, name: new}}
                yield Change(PROCESSOR, f"{part}.{name}", what, {PROCESSOR: second})
    if IMAGE in files and VIDEO not in files:
        for kind in ("Qwen2VLVideoProcessor", files[IMAGE].get("image_processor_type")):
            copied = {**files[IMAGE], "video_processor_type": kind}
            yield Change(VIDEO, "", f"copied from {IMAGE}, {kind}", {VIDEO: copied})


def _in_other_file(files: Files) -> Iterator[Change]:
    """Each field of a processor's file in the file of the other processor."""
    for source, target in ((PROCESSOR, IMAGE), (IMAGE, PROCESSOR)):
        there = files.get(target, {})
        for name, value in files.get(source, {}).items():
            if name not in NESTED and name not in there:
                moved = {source: _with(files[source], (name,)), target: {**there, name: value}}
                yield Change(source, name, f"moved to {target}", moved)


def _is_of(part: str, content: Files) -> bool:
    """Whether a file's own class says that it is that part, as far as it names one."""
    audio = "feature_extractor_type" in content and "image_processor_type" not in content
    return part == "video_processor" or (part == "feature_extractor") is audio


def _templates(files: Files) -> Iterator[Change]:
    """The chat template in each place, and a second one beside it."""
    places = {
        TEMPLATE: files.get(TEMPLATE),
        **{file: files.get(file, {}).get("chat_template")
           for file in (TEMPLATE_JSON, PROCESSOR, TOKENIZER)},
    }  # fmt: skip
    found = next((file for file, text in places.items() if isinstance(text, str)), None)
    first = "{{ 'first ' }}" + "{{ messages | length }}" if found is None else places[found]
    forms: Mapping[str, Any] = {
        "": "{{ 'another ' }}" + first,
        ", as a named list": [{"name": "default", "template": "{{ 'another ' }}" + first}],
        ", empty": "",
    }
    for file in places:
        if found is not None and file != found:
            bare = _template_at(files, found, None)
            moved = {**bare, **_template_at({**files, **bare}, file, first)}
            yield Change(found, "chat_template", f"moved to {file}", moved)
        for form, text in forms.items():
            if file == TEMPLATE and not isinstance(text, str):
                continue
            what = f"another{form}, beside {found}" if file != found else f"another{form}"
            yield Change(file, "chat_template", what, _template_at(files, file, text))


def _template_at(files: Files, file: str, text: Any) -> Files:
    if file == TEMPLATE:
        return {file: text}
    content = {k: v for k, v in (files.get(file) or {}).items() if k != "chat_template"}
    if text is not None:
        content["chat_template"] = text
    return {file: content or None}


def _at(content: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        content = content.get(name) if isinstance(content, Mapping) else None
    return content


def _with(content: Files, path: tuple[str, ...], *new: Any) -> Any:
    """A copy with another value at a path, or without it."""
    result = copy.deepcopy(dict(content))
    inner = _at(result, path[:-1])
    inner.pop(path[-1], None)
    if new:
        inner[path[-1]] = new[0]
    return result


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
