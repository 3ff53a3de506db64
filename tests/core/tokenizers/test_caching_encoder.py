"""Reused beginnings of prompts: the IDs are those of the whole text, whatever was known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest
import tokenizers
from reuse_helpers import (
    HOSTILE,
    NAMES,
    backend_of,
    boundaries_of,
    encoded,
    hostile_texts,
    plainly,
    prefixes_from,
    reusing,
    tiny_tokenizer,
)
from tokenizers import AddedToken

from mmroute import Normalizer
from mmroute.reuse.fast_paths import CacheStats, FastPaths
from mmroute.tokenizers.encoder_choice import PendingEncoder
from mmroute.tokenizers.encoders import CachingEncoder, FastEncoder, ReferenceEncoder

ROOM: Final = 6000  # bytes, for less than ten of the texts below


@pytest.fixture(scope="module", autouse=True)
def short_texts_are_known() -> Iterator[None]:
    with prefixes_from(8):
        yield


def reuse_of(encoder: CachingEncoder) -> CacheStats:
    stats = encoder.stats().reuse
    assert stats is not None
    return stats


def conversation(draw: random.Random, tokens: list[str]) -> list[str]:
    """Texts that grow, are cut, edited, branched off and asked again."""
    pieces = hostile_texts(draw, tokens, max_pieces=6)
    texts = ["".join(islice(pieces, draw.randint(1, 4)))]
    for _ in range(draw.randint(1, 12)):
        base = draw.choice(texts)
        low, high = sorted(draw.choices(range(len(base) + 1), k=2))
        edit = draw.choice(("grow", "grow", "cut", "edit", "branch", "again"))
        texts.append(
            {
                "grow": base + next(pieces),
                "cut": base[:high],
                "edit": base[:low] + next(pieces) + base[high:],
                "branch": base[:high] + next(pieces),
                "again": base,
            }[edit]
        )
    return texts + draw.sample(texts, len(texts))


@pytest.mark.parametrize("name", NAMES)
def test_reuse_never_changes_ids(name: str, small_model: Callable[[str], Path]) -> None:
    tokenizer = backend_of(small_model(name))
    tokens = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    shared, _ = reusing(tokenizer, max_bytes=ROOM)
    draw = random.Random(2026)
    for _ in range(20):
        for text in conversation(draw, tokens):
            assert encoded(shared, text) == plainly(tokenizer, text), text


def chats(tokens: list[str], seed: int, count: int) -> list[str]:
    """Chats of one shared beginning: some go on, some are asked again from an earlier turn."""
    chance = random.Random(seed)
    texts = ["".join(chance.choices([*tokens, *HOSTILE], k=20))]
    while len(texts) < count:
        base = chance.choice(texts[-6:])
        base = base[: chance.randint(len(base) // 2, len(base))] if chance.random() < 0.3 else base
        turn = chance.choices([*tokens, *HOSTILE, "what is this picture"], k=chance.randint(1, 8))
        texts.append((base if len(base) < 1500 else texts[0]) + "".join(turn))
    return texts


@pytest.mark.parametrize("name", NAMES)
def test_a_full_cache_still_gives_the_right_ids(
    name: str, small_model: Callable[[str], Path]
) -> None:
    tokenizer = backend_of(small_model(name))
    shared, encoder = reusing(tokenizer, max_bytes=8 * ROOM)
    texts = chats([*boundaries_of(tokenizer).values()], 1, 200)
    for text in texts:
        assert encoded(shared, text) == plainly(tokenizer, text)
    stats = reuse_of(shared)
    assert stats.hits > 100
    assert stats.reused == sum(map(len, texts)) - sum(map(len, encoder.texts))
    assert 4 * ROOM < stats.kept_bytes <= 8 * ROOM, "it was never full"


@pytest.mark.parametrize("engine", ["tokenizers", "fastokens"])
def test_many_threads_share_what_is_kept(engine: str, small_model: Callable[[str], Path]) -> None:
    fast_paths = FastPaths(encoder=engine, text_cache_bytes=0)
    tokenizer: Any = Normalizer.from_pretrained(
        small_model("small-qwen2-vl"), fast_paths=fast_paths
    ).model.tokenizer
    boundaries = boundaries_of(tokenizer.backend)
    if isinstance(tokenizer.encoder, PendingEncoder):
        assert type(tokenizer.encoder.chosen()) is ReferenceEncoder
    else:
        assert type(tokenizer.encoder) is FastEncoder
    shared = CachingEncoder(
        tokenizer.encoder,
        boundaries,
        max_bytes=8 * ROOM,
        min_chars=1,
    )
    texts = [text for seed in range(8) for text in chats([*boundaries.values()], seed % 4, 50)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: encoded(shared, text), texts, chunksize=1))
    assert found == [plainly(tokenizer.backend, text) for text in texts]
    stats = reuse_of(shared)
    assert stats.hits > 100
    assert stats.hits + stats.misses == sum(len(text) >= 8 for text in texts)
    assert stats.kept_bytes <= 8 * ROOM


# What is encoded, and what is kept


def with_end() -> tokenizers.Tokenizer:
    return tiny_tokenizer([AddedToken("<b>", normalized=False)])


def test_only_what_is_new_is_encoded() -> None:
    reuse, encoder = reusing(with_end())
    turn = "aba ab<b>ab"
    for text in (turn, turn + " a<b>", turn + " a<b>", turn + " a<b>b", turn[:9] + "bbbb"):
        encoded(reuse, text)
    assert encoder.texts == [turn, "ab a<b>", "", "b", "bbbb"]
    stats = reuse_of(reuse)
    assert (stats.hits, stats.misses, stats.reused) == (4, 1, 9 + 16 + 16 + 9)


def test_what_has_no_boundary_is_not_kept() -> None:
    reuse, _ = reusing(with_end())
    for _ in range(2):
        encoded(reuse, "ab ab ab ab")
    assert (reuse_of(reuse).misses, reuse_of(reuse).entries) == (2, 0)


def test_short_texts_and_those_that_get_a_bos_are_neither_looked_for_nor_kept() -> None:
    reuse, encoder = reusing(with_end(), min_chars=12)
    text = "ab ab<b> ab ab"
    for _ in range(2):
        encoded(reuse, text[:11])
        reuse.encode(text, add_special_tokens=True)
    assert encoder.texts == 2 * [text[:11], text]
    assert reuse_of(reuse) == CacheStats()


def test_an_answer_can_be_changed_without_changing_later_ones() -> None:
    """They are the caller's; what is kept is not."""
    reuse, encoder = reusing(with_end())
    text = "ab ab<b>ab"
    for _ in range(3):
        ids = reuse.encode(text, add_special_tokens=False)
        assert ids.tolist() == encoder.encode(text, add_special_tokens=False).tolist()
        if ids.flags.writeable:
            ids[:] = 0
