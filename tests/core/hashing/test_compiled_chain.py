"""The compiled block hashes against those of Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from compiled import built
from hypothesis import given
from hypothesis import strategies as st

from mmroute.hashing import Algorithm, ExtraKey, ExtraKeys, HashedItem, chain, extra_keys, none_hash
from mmroute.requests.request import Lora
from mmroute.token_ids import TokenIds
from tools import needs

pytestmark = [pytest.mark.process, needs("cc", "the extension is optional")]

MODULE = "mmroute.hashing.native._chain"
ALGORITHMS = list(Algorithm)
SEED = "0"


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built(tmp_path_factory.mktemp("extension"), MODULE)


@pytest.fixture(autouse=True)
def use_extension(extension: ModuleType) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "_chain", extension)
        forget_what_was_proved()
        yield
    forget_what_was_proved()


def forget_what_was_proved() -> None:
    for proved in (chain.compiled, chain._pages_compiled, chain._words_compiled):
        proved.cache_clear()


def prompt(*ids: int) -> TokenIds:
    return np.array(ids, dtype=np.uint32)


widths = st.sampled_from([0, 23, 24, 255, 256, 65535, 65536, 2**31 - 1])
texts = st.one_of(
    st.sampled_from(["", "a", "é", "Ā", "mm", "lora", "🐈", "0" * 64, "x" * 255, "ü" * 128]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)


@st.composite
def prompts(draw: st.DrawFn) -> tuple[TokenIds, ExtraKeys]:
    block_size = draw(st.sampled_from([1, 2, 3, 4, 16, 64]))
    blocks = draw(st.integers(1, 8))
    size = block_size * blocks
    ids = prompt(*draw(st.lists(widths | st.integers(0, 2**17), min_size=size, max_size=size)))
    items = []
    for _ in range(draw(st.integers(0, 3))):
        item = HashedItem(draw(texts), draw(st.integers(0, size)), draw(st.integers(1, size)))
        if draw(st.booleans()):
            ids[item.offset : item.stop] = 9
        items.append(item)
    lora = draw(st.none() | st.builds(Lora, texts.filter(bool), texts))
    salt = draw(st.none() | texts)
    keys = extra_keys(items, num_blocks=blocks, block_size=block_size, lora=lora, cache_salt=salt)
    known = draw(st.integers(0, blocks - 1))
    if draw(st.booleans()):
        keys = ExtraKeys.of_blocks(list(keys), block_size)
    return ids[known * block_size :], keys.behind(known)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(case=prompts())
def test_hashes_are_those_of_python(algorithm: Algorithm, case: Any) -> None:
    parent = none_hash(algorithm, SEED)
    if not chain.compiled(algorithm):
        assert algorithm.startswith("sha256")  # a processor without its instructions
        return
    ids, keys = case
    expected = chain._by_python(algorithm, ids, keys, parent)
    assert chain._by_extension(algorithm, ids, keys, parent) == expected


@pytest.mark.parametrize("algorithm", ["sha256", "xxhash"])
@pytest.mark.parametrize(
    ("ids", "identity"),
    [(prompt(1, 2**31), "cat"), (prompt(1, 2**32 - 1), "cat"), (prompt(1, 2), "x" * 66_000)],
    ids=["wide ID", "widest ID", "second frame"],
)
def test_what_pickle_writes_otherwise_is_left_to_it(
    algorithm: str, ids: TokenIds, identity: str
) -> None:
    chosen = Algorithm(algorithm)
    keys = extra_keys([HashedItem(identity, 0, 2)], num_blocks=1, block_size=2)
    parent = none_hash(chosen, SEED)
    assert chain._by_extension(chosen, ids, keys, parent) is None
    assert chain.hash_chain(chosen, ids, keys, parent) == chain._by_python(
        chosen, ids, keys, parent
    )


def test_blocks_on_both_sides_of_a_pickle_frame() -> None:
    parent = none_hash("xxhash", SEED)
    written = 0
    for length in range(65_536 - 160, 65_536):
        keys = extra_keys(num_blocks=1, block_size=4, cache_salt="s" * length)
        given_keys = (Algorithm.XXHASH, prompt(1, 2, 3, 4), keys, parent)
        found = chain._by_extension(*given_keys)
        assert found in (None, chain._by_python(*given_keys))
        written += found is not None
    assert 0 < written < 160


def test_more_keys_than_the_short_memo_of_a_pickle_has() -> None:
    keys: tuple[ExtraKey, ...] = tuple(
        ("mm", "ab"[i % 2] if i > 200 else f"image {i}", -i) for i in range(400)
    )
    for algorithm in (Algorithm.XXHASH, Algorithm.XXHASH_CBOR):
        parent = none_hash(algorithm, SEED)
        given_keys = (algorithm, prompt(1, 2), ExtraKeys.of_blocks([keys], 2), parent)
        assert chain._by_extension(*given_keys) == chain._by_python(*given_keys)


@given(
    ids=st.lists(widths | st.integers(0, 2**32 - 1), min_size=1, max_size=200),
    size=st.sampled_from([1, 3, 16, 64]),
    parent=st.binary(min_size=32, max_size=32),
    seed=st.integers(0, 2**64 - 1),
)
def test_pages_and_words_are_those_of_python(
    ids: list[int], size: int, parent: bytes, seed: int
) -> None:
    whole = prompt(*ids[: len(ids) // size * size])
    if chain._pages_compiled():  # the processor has instructions for SHA-256
        found = chain._pages_by_extension(whole, size, parent)
        assert found == chain._pages_by_python(whole, size, parent)
    assert chain._words_compiled()
    words = chain.hash_words(whole.tobytes(), 4 * size, seed)
    assert words == chain._words_by_python(whole.tobytes(), 4 * size, seed)
    assert chain.link_words(words, seed) == chain._links_by_python(words, seed)


def test_processors_without_instructions_for_sha256(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFLAGS", "-DMMROUTE_PORTABLE_SHA256")
    monkeypatch.setattr(chain, "_chain", built(tmp_path, MODULE))
    ids, parent = np.arange(2**31 - 130, 2**31 - 1, dtype=np.uint32), bytes(range(32))
    for size in range(1, 65):  # every padding of pages of one to five blocks of SHA-256
        pages = ids[: 2 * size], size, parent
        assert chain._pages_by_extension(*pages) == chain._pages_by_python(*pages)
    assert chain.compiled(Algorithm.SHA256)


def test_words_of_no_whole_block_are_refused(extension: ModuleType) -> None:
    for wrong in (0, 3, -1):
        with pytest.raises(ValueError, match="blocks"):
            extension.hash_words(b"1234", wrong, 0)
    with pytest.raises(ValueError, match="blocks"):
        extension.link_words(b"123456789", 0)
    assert (extension.hash_words(b"", 4, 0), extension.link_words(b"", 0)) == (b"", b"")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_extension_with_other_hashes_is_not_used(
    algorithm: Algorithm, extension: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong:
        """Swaps two bytes of every hash."""

        PICKLE, CBOR, RAW = extension.PICKLE, extension.CBOR, extension.RAW
        SHA256, XXH3_128 = extension.SHA256, extension.XXH3_128

        @staticmethod
        def hash_chain(*args: Any) -> tuple[bytes, ...] | None:
            found = extension.hash_chain(*args)
            return found and tuple(digest[1::-1] + digest[2:] for digest in found)

        @staticmethod
        def hash_words(*args: Any) -> bytes:
            found: bytes = extension.hash_words(*args)
            return found[::-1]

        link_words = extension.link_words

    monkeypatch.setattr(chain, "_chain", Wrong)
    forget_what_was_proved()
    proved = (chain.compiled(algorithm), chain._pages_compiled(), chain._words_compiled())
    assert not any(proved)


def test_threads_share_it() -> None:
    ids = np.random.default_rng(0).integers(0, 151_000, 16 * 600).astype(np.uint32)
    keys = extra_keys([HashedItem("cat", 90, 3000)], num_blocks=600, block_size=16)
    parent = none_hash("xxhash", SEED)
    expected = chain._by_python(Algorithm.XXHASH, ids, keys, parent)
    found: list[object] = []

    def ask() -> None:
        found.extend(chain.hash_chain(Algorithm.XXHASH, ids, keys, parent) for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 80


@pytest.mark.parametrize(
    "wrong",
    [
        {0: b"123"},  # not whole IDs
        {0: bytes(4 * 3)},  # not whole blocks
        {1: 0},
        {2: b"short"},
        {3: 7},
        {4: 7},
        {5: b"no frame"},
        {9: ((0, 9, b"", b"", -1),)},
        {9: ((-1, 1, b"", b"", -1),)},
        {10: {5: b""}},
    ],
)
def test_arguments_that_describe_no_blocks_are_refused(
    extension: ModuleType, wrong: dict[int, Any]
) -> None:
    head = b"\x80\x05\x95" + bytes(8) + b"C\x10"
    right: list[Any] = [bytes(4 * 4), 2, bytes(16), extension.PICKLE, extension.XXH3_128]
    right += [head, b"\x94", b"\x86\x94", b"N\x87\x94.", (), {}]
    assert len(extension.hash_chain(*right)) == 2
    for position, value in wrong.items():
        right[position] = value
    with pytest.raises(ValueError, match=r"blocks"):
        extension.hash_chain(*right)
