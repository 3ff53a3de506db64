"""What hundreds of tests load is made once. `pytest --unpatched` does without this plugin."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer as Loader
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from mmroute import cli
from mmroute.chat.template import ChatTemplate
from mmroute.model_directory import EMBEDDED_MODEL, JsonValue, ModelFiles, find_model
from mmroute.tokenizers import encoder_choice
from mmroute.tokenizers.encoder_choice import Ahead
from mmroute.tokenizers.encoders import Encoder, FastEncoder, ReferenceEncoder, may_be_cut
from mmroute.tokenizers.formats import mistral
from mmroute.tokenizers.formats.mistral import MistralTokenizer, Tekken


@pytest.fixture(scope="session", autouse=True)
def what_nothing_can_change_is_made_once() -> Iterator[None]:
    """Hundreds of tests load the same few chat templates, or call the command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChatTemplate, "compile", functools.cache(ChatTemplate.compile))
        patch.setattr(cli, "_parser", functools.cache(cli._parser))
        yield


@pytest.fixture(scope="session", autouse=True)
def the_embedded_model_is_read_once() -> Iterator[None]:
    """Dozens of tests load it as users do; most of that is its vocabulary."""
    read, load = ModelFiles.json, mistral.load_mistral_model
    loaded = functools.cache(
        lambda text_cache_bytes: load(find_model(EMBEDDED_MODEL), text_cache_bytes)
    )
    values: dict[Path, JsonValue] = {}

    def reading_once(kind: type[Tekkenizer]) -> Callable[[str | Path], Tekkenizer]:
        parse, parsed = kind.from_file, functools.cache(kind.from_file)

        def from_file(path: str | Path) -> Tekkenizer:
            found = Path(path).resolve()
            return parsed(found) if found.is_relative_to(Loader._data_path()) else parse(path)

        return from_file

    def json(files: ModelFiles, file: str) -> JsonValue:
        if files.name != EMBEDDED_MODEL:
            return read(files, file)
        path = files.path(file)
        if path not in values:
            values[path] = read(files, file)
        return values[path]

    def load_mistral_model(files: ModelFiles, text_cache_bytes: int) -> MistralTokenizer:
        own = files.name != EMBEDDED_MODEL
        return load(files, text_cache_bytes) if own else loaded(text_cache_bytes)

    with pytest.MonkeyPatch.context() as patch:
        for kind in (Tekken, Tekkenizer):  # the one that inherits first
            patch.setattr(kind, "from_file", reading_once(kind))
        patch.setattr(ModelFiles, "json", json)
        patch.setattr(mistral, "load_mistral_model", load_mistral_model)
        yield


@pytest.fixture(scope="session", autouse=True)
def encoders_are_proved_once() -> Iterator[None]:
    """Hundreds of tests load the same few tokenizers; nearly all of that is their encoder's proof.

    A test that puts another library in the place of fastokens gets a proof of its own.
    """
    library = importlib.import_module("fastokens") if find_spec("fastokens") else None
    prove = encoder_choice._proved
    proved: dict[str, FastEncoder] = {}
    cut: dict[tuple[str, int], bool] = {}

    def proved_once(
        backend: tokenizers.Tokenizer, declared: Mapping[str, Any], ahead: Ahead | None
    ) -> FastEncoder:
        if sys.modules.get("fastokens") is not library:
            return prove(backend, declared, ahead)
        key = backend.to_str()
        if key not in proved:
            proved[key] = prove(backend, declared, ahead)
        return proved[key]

    def cut_once(encoder: Encoder, boundaries: Mapping[int, str]) -> bool:
        reference = encoder._reference if isinstance(encoder, FastEncoder) else encoder
        assert isinstance(reference, ReferenceEncoder)
        key = f"{encoder.stats().engine} {reference._backend.to_str()}", len(boundaries)
        if key not in cut:
            cut[key] = may_be_cut(encoder, boundaries)
        return cut[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder_choice, "_proved", proved_once)
        patch.setattr(encoder_choice, "may_be_cut", cut_once)
        yield
