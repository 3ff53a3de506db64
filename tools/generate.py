"""Compute expected answers with vLLM's own code.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate.py [--kind KIND] [MODEL ...]
    python tools/generate.py --directory DIR --out FILE

The kinds are `prompts`, token IDs and ranges; `media`, those of videos and audio; `images`, those
of image files, with identities and block hashes; `chats`, prompts of renderers in code; `metadata`
of items, as the render route makes it. Each asks the requests of a model's file again, for each
model named, or for all. A new request is a line without an answer. The file of a new model begins
as a copy of that of a model like it, with the placeholder of the new one. The second form asks
about image files and a real model directory; MMROUTE_IMAGE_VECTORS names such files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import EMBEDDED, Engine, engines, meta, parser_of, refuse_other_versions
from vector_files import VECTORS, requests_of, write_lines


@dataclass(frozen=True, slots=True)
class Kind:
    """Where the requests of models are, and what a model answers."""

    folders: Sequence[str]
    answers: Callable[[Engine, Iterable[dict[str, Any]]], Iterable[dict[str, Any]]]
    files: Callable[[str], dict[str, Any] | None] = lambda _: None  # if others than a model's own
    with_name: bool = False  # in the first line, the model string of the engine


def main() -> None:
    """Write one file for each model named, or for all."""
    parser = parser_of(__doc__, ())
    add = parser.add_argument
    add("--kind", choices=KINDS, default="prompts")
    add("--directory", type=Path, help="a real model directory instead")
    add("--out", type=Path, help="where vLLM's answers for it go")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.directory is not None:
        refuse_other_versions()
        name = arguments.directory.name
        engine = Engine(arguments.directory, model_id=f"org/{name}")
        requests = map(with_urls, requests_of(VECTORS / "images" / f"{EMBEDDED}.jsonl"))
        lines = [meta(name, model_id=f"org/{name}"), *images(engine, requests)]
        write_lines(arguments.out, lines)
        return
    kind = KINDS[arguments.kind]
    paths = {
        path.stem: path
        for folder in kind.folders
        for path in sorted((VECTORS / folder).glob("*.jsonl"))
        if path.name not in NO_MODELS
    }
    arguments.models = arguments.models or [*paths]
    for model, engine, fingerprint in engines(arguments, kind.files):
        named = {"model_id": f"org/{model}"} if kind.with_name else {}
        lines = [*kind.answers(engine, requests_of(paths[model]))]
        write_lines(paths[model], [meta(model, **named, fingerprint=fingerprint), *lines])


def media_files(model: str) -> dict[str, Any] | None:
    """The files of a model whose template writes videos and audio."""
    from small_models import media_model

    return None if model == EMBEDDED else media_model(model)


def prompts(engine: Engine, cases: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for case in cases:
        yield case | {"expect": engine.answer(with_files(case))}


def images(engine: Engine, cases: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for case in cases:
        yield {**case, "expect": engine.block_answer(with_urls(case))}


def with_urls(case: Mapping[str, Any]) -> dict[str, Any]:
    """A request that has the image files that it names."""
    import comparison
    from image_vectors import file_urls

    found: dict[str, Any] = comparison.with_files(case, file_urls())
    return found


def chats(engine: Engine, _: object) -> Iterator[dict[str, Any]]:
    from comparison import read_lines

    for case in read_lines(VECTORS / "chats" / "requests.jsonl"):
        name = case.pop("id")
        yield {"id": name, "expect": engine.prompt(case)}


def metadata(engine: Engine, cases: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The requests that the engine answers, and the metadata in its answers."""
    from vllm.entrypoints.scale_out.token_in_token_out.mm_features import extract_mm_features

    inner = engine._engine
    renderer = inner.renderer
    declared = renderer.mm_processor.info.data_parser.placeholder_metadata_fields
    for case in cases:
        # Each request as the first one a server gets: it sends an item once.
        if renderer.mm_processor_cache is not None:
            renderer.mm_processor_cache.clear_cache()
        asked = with_files(case)
        try:
            entered = inner._rendered(asked, *inner.chat_prompt(asked))
            features = extract_mm_features(entered, metadata_fields_for=declared)
        except Exception:  # noqa: S112 - it refuses the items, or two adjacent ranges overlap
            continue
        if features is not None:
            yield {**case, "expect": features.mm_metadata}


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


NO_MODELS = ("files.jsonl", "requests.jsonl")
KINDS: Mapping[str, Kind] = {
    "prompts": Kind(("", "families"), prompts),
    "media": Kind(("media",), prompts, media_files),
    "images": Kind(("images",), images, with_name=True),
    "chats": Kind(("chats",), chats),
    "metadata": Kind(("metadata",), metadata, media_files),
}


if __name__ == "__main__":
    main()
