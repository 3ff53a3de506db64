"""Compute expected answers with vLLM's own code.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate.py [--kind KIND] [MODEL ...]
    python tools/generate.py --directory DIR --out FILE

The kinds are `prompts`, token IDs and ranges; `media`, those of videos and audio; `images`, those
of image files, with identities and block hashes; `chats`, prompts of renderers in code; `metadata`
of items, as the render route makes it. Each writes a file for each model named, or for all. The
second form asks about image files and a real model directory; MMROUTE_IMAGE_VECTORS names such
files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import EMBEDDED, Engine, engines, meta, parser_of, refuse_other_versions
from vector_files import VECTORS, write_lines

CHATS = ("small-deepseek-v3.2", "small-deepseek-v4", "small-deepseek-v4.1", "small-inkling")
"""One of each renderer in code."""
_SIZES = ((1280, 720), (33, 500), (1, 1), (200, 196))
_VIDEOS = ((64, 48, 2, 1), (100, 33, 5, 4), (320, 240, 33, 20))
_LENGTHS = ((16000, 16000), (48003, 48000), (500, 16000))
_FIELDS = {
    "image": ("width", "height"),
    "video": ("width", "height", "num_frames", "fps"),
    "audio": ("num_samples", "sampling_rate"),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """Which models are asked, and what a model answers."""

    models: Iterable[str]
    answers: Callable[[str, Engine], Iterable[dict[str, Any]]]
    files: Callable[[str], dict[str, Any] | None] = lambda _: None
    with_name: bool = False  # in the first line, the model string of the engine


def kinds() -> Mapping[str, Kind]:
    from cases import FAMILY_PLACEHOLDERS, PLACEHOLDERS
    from small_models import MEDIA_ANSWERED, media_model

    every = [*PLACEHOLDERS, *FAMILY_PLACEHOLDERS]
    return {
        "prompts": Kind(every, prompts),
        "media": Kind(MEDIA_ANSWERED, media, media_model),
        "images": Kind(PLACEHOLDERS, images, with_name=True),
        "chats": Kind(CHATS, chats),
        "metadata": Kind(every, metadata, lambda m: None if m == EMBEDDED else media_model(m)),
    }


def main() -> None:
    """Write one file for each model named, or for all."""
    from cases import FAMILY_PLACEHOLDERS

    parser = parser_of(__doc__, ())
    add = parser.add_argument
    add("--kind", choices=("prompts", "media", "images", "chats", "metadata"), default="prompts")
    add("--directory", type=Path, help="a real model directory instead")
    add("--out", type=Path, help="where vLLM's answers for it go")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.directory is not None:
        refuse_other_versions()
        name = arguments.directory.name
        engine = Engine(arguments.directory, model_id=f"org/{name}")
        lines = [meta(name, model_id=f"org/{name}"), *images(name, engine, whole=True)]
        write_lines(arguments.out, lines)
        return
    kind = kinds()[arguments.kind]
    folder = "" if arguments.kind == "prompts" else arguments.kind
    arguments.models = arguments.models or [*kind.models]
    for model, engine, fingerprint in engines(arguments, kind.files):
        named = {"model_id": f"org/{model}"} if kind.with_name else {}
        lines = [*kind.answers(model, engine)]
        if lines:
            of_family = not folder and model in FAMILY_PLACEHOLDERS
            path = VECTORS / ("families" if of_family else folder) / f"{model}.jsonl"
            write_lines(path, [meta(model, **named, fingerprint=fingerprint), *lines])


def prompts(model: str, engine: Engine) -> Iterator[dict[str, Any]]:
    from cases import FAMILY_PLACEHOLDERS, cases, family_cases

    return _answered(engine, (family_cases if model in FAMILY_PLACEHOLDERS else cases)(model))


def media(model: str, engine: Engine) -> Iterator[dict[str, Any]]:
    from cases import media_cases
    from small_models import MEDIA

    return _answered(engine, media_cases(model, MEDIA[model]))


def _answered(engine: Engine, cases: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for case in cases:
        if not case.get("images"):
            case.pop("images", None)
        yield case | {"expect": engine.answer(with_files(case))}


def images(_: str, engine: Engine, *, whole: bool = False) -> Iterator[dict[str, Any]]:
    """The answers; and the files by name, unless the requests have them whole."""
    import comparison
    from image_cases import data_url, image_cases, image_files

    files = image_files()
    urls = {name: data_url(data) for name, data in files.items()}
    if not whole:
        lines = [{"name": name, "url": url} for name, url in urls.items()]
        write_lines(VECTORS / "images" / "files.jsonl", lines)
    for case in image_cases(files):
        request = comparison.with_files(case, urls)
        yield {**(request if whole else case), "expect": engine.block_answer(request)}


def chats(_: str, engine: Engine) -> Iterator[dict[str, Any]]:
    from comparison import read_lines

    for case in read_lines(VECTORS / "chats" / "requests.jsonl"):
        name = case.pop("id")
        yield {"id": name, "expect": engine.prompt(case)}


def metadata(_: str, engine: Engine) -> Iterator[dict[str, Any]]:
    """The requests that the engine answers, and the metadata in its answers."""
    from vllm.entrypoints.scale_out.token_in_token_out.mm_features import extract_mm_features

    inner = engine._engine
    renderer = inner.renderer
    if renderer.mm_processor is None:
        return
    declared = renderer.mm_processor.info.data_parser.placeholder_metadata_fields
    for request in _items():
        # Each request as the first one a server gets: it sends an item once.
        if renderer.mm_processor_cache is not None:
            renderer.mm_processor_cache.clear_cache()
        asked = with_files(request)
        try:
            entered = inner._rendered(asked, *inner.chat_prompt(asked))
            features = extract_mm_features(entered, metadata_fields_for=declared)
        except Exception:  # noqa: S112 - it refuses the items, or two adjacent ranges overlap
            continue
        if features is not None:
            yield {**request, "expect": features.mm_metadata}


def _items() -> Iterator[dict[str, Any]]:
    """One item of each kind, and all of a kind together."""
    for modality, all_numbers in (("image", _SIZES), ("video", _VIDEOS), ("audio", _LENGTHS)):
        names = _FIELDS[modality]
        items = [dict(zip(names, numbers, strict=True)) for numbers in [*all_numbers]]
        for chosen in ([items[0]], [items[1]], [items[2]], items):
            content = [{"type": modality} for _ in chosen] + [{"type": "text", "text": "What?"}]
            yield {"messages": [{"role": "user", "content": content}], f"{modality}s": chosen}


def with_files(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """A case with a file in place of each video and audio of which it gives the numbers."""
    from mmroute.lab.parity.media_cases import gif_url, wav_url

    urls = {
        "video": iter(
            gif_url(v["width"], v["height"], v["num_frames"], 100 // v["fps"])
            for v in case.get("videos", ())
        ),
        "audio": iter(
            wav_url(a["num_samples"], a["sampling_rate"]) for a in case.get("audios", ())
        ),
    }

    def part(value: Any) -> Any:
        kind = value.get("type") if isinstance(value, Mapping) else None
        if kind not in urls:
            return value
        return {"type": f"{kind}_url", f"{kind}_url": {"url": next(urls[kind])}}

    def message(value: Mapping[str, Any]) -> Mapping[str, Any]:
        content = value.get("content")
        return {**value, "content": [*map(part, content)]} if isinstance(content, list) else value

    if not (case.get("videos") or case.get("audios")):
        return case
    return {**case, "messages": [*map(message, case["messages"])]}


if __name__ == "__main__":
    main()
