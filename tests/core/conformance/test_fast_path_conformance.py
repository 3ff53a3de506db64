"""vLLM's own answers again, with every fast path off, and with every one on for every text.

In use a cache keeps only what is long; here it keeps everything, and each request comes twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from comparison import read_vectors
from image_vectors import IMAGE_VECTORS, wrong_parts
from reuse_helpers import prefixes_from
from small_models import SMALL_MODELS
from test_conformance import OWN_VECTORS, vector_name

from mmroute import Normalizer
from mmroute.chat import cache as chat_cache
from mmroute.chat.resumable import proved
from mmroute.errors import ModelError, Reason
from mmroute.hashing import hashes as hash_cache
from mmroute.images import data_url as known_files
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.reuse.fast_paths import REFERENCE_ONLY, FastPaths
from mmroute.tokenizers import encoder_choice

pytestmark = pytest.mark.conformance

OFF = REFERENCE_ONLY
ON = FastPaths(encoder="fastokens")


@pytest.fixture(scope="module")
def everything_is_kept() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, prefixes_from(16):
        patch.setattr(encoder_choice, "_MIN_CACHED_REFERENCE", 1)
        patch.setattr(encoder_choice, "_MIN_CACHED_FASTOKENS", 1)
        patch.setattr(hash_cache, "_MIN_TOKENS", 1)
        patch.setattr(chat_cache, "_MIN_MESSAGES", 1)
        patch.setattr(chat_cache, "_MOST", 0)
        patch.setattr(known_files, "_MIN_CACHED_CHARS", 1)
        yield


@lru_cache(maxsize=1)  # the vector files of one model are run one after the other
def load(model: str, model_id: str | None, fast_paths: FastPaths) -> Normalizer:
    """A model whose encoder is chosen: with fastokens, or where that does not fit without."""
    try:
        normalizer = Normalizer.from_pretrained(model, model_id=model_id, fast_paths=fast_paths)
    except ModelError as error:
        if error.reason != Reason.FAST_ENCODER_UNAVAILABLE:
            raise
        without = replace(fast_paths, encoder="auto")
        normalizer = Normalizer.from_pretrained(model, model_id=model_id, fast_paths=without)
    normalizer.stats()  # waits for the encoder_choice
    return normalizer


@dataclass(frozen=True)
class Small:
    """Loads small models, and the embedded one, with the model strings of their vectors."""

    directory: Callable[[str], Path]

    def load(self, name: str, fast_paths: FastPaths) -> Normalizer:
        model = str(self.directory(name)) if name in SMALL_MODELS else name
        return load(model, f"org/{name}", fast_paths)


@pytest.fixture
def small(small_model: Callable[[str], Path]) -> Small:
    return Small(small_model)


def differences(normalizer: Normalizer, cases: list[dict[str, Any]], *, times: int) -> str:
    """What is wrong with the answers to requests that come so many times."""
    # One right after the other: the next image of the same size has the same token IDs, and what
    # was kept of the last one gives way to it.
    wrong = [
        (time, case["id"], found)
        for case in cases
        for time in range(times)
        if (found := wrong_parts(normalizer, case))
    ]
    return json.dumps(wrong, indent=1) if wrong else ""


def has_chats(normalizer: Normalizer) -> bool:
    """Whether chats of the model can be kept."""
    templates = (normalizer.model.chat.templates or {}).values()
    return any(proved(template) is not None for template in templates)


@pytest.mark.parametrize("path", [*OWN_VECTORS, *IMAGE_VECTORS], ids=vector_name)
def test_without_any_fast_path(path: Path, small: Small) -> None:
    normalizer = small.load(path.stem, OFF)
    assert not differences(normalizer, read_vectors(path)[1], times=1)
    stats = normalizer.stats()
    assert stats.hashes is None
    assert stats.chats is None
    if stats.encoder is not None:
        assert stats.encoder.engine.startswith("tokenizers")
        assert stats.encoder.reuse is None


@pytest.mark.parametrize("path", [*OWN_VECTORS, *IMAGE_VECTORS], ids=vector_name)
@pytest.mark.usefixtures("everything_is_kept")
def test_with_every_fast_path(path: Path, small: Small) -> None:
    normalizer = small.load(path.stem, ON)
    cases = read_vectors(path)[1]
    assert not differences(normalizer, cases, times=2)
    stats = normalizer.stats()
    if has_chats(normalizer):
        assert stats.chats is not None
        assert stats.chats.hits
        # They leave nothing to the cache of texts.
        normalizer = replace(normalizer, caches=normalizer.caches._replace(chats=None))
        assert not differences(normalizer, cases, times=2)
        stats = normalizer.stats()
    if path.stem != EMBEDDED_MODEL:  # it encodes chats by itself
        assert stats.encoder is not None
        assert stats.encoder.engine.startswith("fastokens")
        assert stats.encoder.reuse is not None
        assert stats.encoder.reuse.hits > len(cases) / 2
    if path in IMAGE_VECTORS:
        assert stats.hashes is not None
        assert stats.hashes.hits > len(cases)
