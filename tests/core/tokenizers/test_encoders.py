"""Who encodes: fastokens only where it has the reference's IDs, and every way back."""

from __future__ import annotations

import functools
import json
import random
import sys
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
from reuse_helpers import hostile_texts, plainly
from small_models import SMALL_MODELS
from waiting import until

from mmroute import Normalizer
from mmroute.errors import ModelError, Reason
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.reuse.fast_paths import EncoderChoice, EncoderStats, FastPaths
from mmroute.tokenizers.encoders import ReferenceEncoder
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer

MODEL = "small-qwen2-vl"
PRIVATE = "what is in the picture of my cat"
# Their tokenizer.json is that of another small model.
SAME_VOCABULARY = {"small-qwen3-vl", "small-llava-next", "small-mistral3", "small-phi-3.5-vision"}
LONG = f"<|im_start|>user\n{PRIVATE}<|im_end|>\n" * 20


def tokenizer_of(normalizer: Normalizer) -> HfTokenizer:
    tokenizer = normalizer.model.tokenizer
    assert isinstance(tokenizer, HfTokenizer)
    return tokenizer


def reference_ids(normalizer: Normalizer, text: str, *, special: bool = False) -> list[int]:
    return plainly(tokenizer_of(normalizer).backend, text, special=special)


def ids_of(normalizer: Normalizer, text: str) -> list[int]:
    """The answer to a text, whoever gives it."""
    ids: list[int] = normalizer.normalize(prompt=text).token_ids.tolist()
    return ids


def encoder_stats(normalizer: Normalizer) -> EncoderStats:
    stats = normalizer.stats().encoder
    assert stats is not None
    return stats


class FakeFastokens:
    """`fastokens.Tokenizer` made of the reference, so that it can be told to do wrong.

    Attributes:
        lies: whether a text gets a wrong ID.
        fails: whether a text makes it raise.
        texts: what it was asked to encode.
        loads: the JSON of each load.
    """

    def __init__(self) -> None:
        self.lies: Callable[[str], bool] = lambda _: False
        self.fails: Callable[[str], bool] = lambda _: False
        self.texts: list[str] = []
        self.loads: list[str] = []
        self._backend: Any = None

    def from_json_str(self, serialized: str) -> Any:
        self.loads.append(serialized)
        backend = tokenizers.Tokenizer.from_str(serialized)

        def encode_batch_flat(texts: list[str], *, add_special_tokens: bool) -> Any:
            self._backend = backend
            return self.encode_batch_flat(texts, add_special_tokens=add_special_tokens)

        return SimpleNamespace(encode=backend.encode, encode_batch_flat=encode_batch_flat)

    def encode_batch_flat(self, texts: list[str], *, add_special_tokens: bool) -> Any:
        self.texts += texts
        (text,) = texts
        if self.fails(text):
            raise RuntimeError("match limit exceeded")
        ids = np.array(
            self._backend.encode(text, add_special_tokens=add_special_tokens).ids, dtype="<u4"
        )
        if len(ids) and self.lies(text):
            ids[-1] ^= 1
        return ids.tobytes(), np.array([0, len(ids)], "<u8").tobytes()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeFastokens:
    backend = FakeFastokens()
    monkeypatch.setitem(sys.modules, "fastokens", SimpleNamespace(Tokenizer=backend))
    return backend


@pytest.fixture(scope="module")
def loaded(small_model: Callable[[str], Path]) -> Callable[[str, str], Normalizer]:
    """A small model with an encoder; the choice is made, so that it is this one that answers."""

    @functools.cache
    def load(name: str, encoder: str) -> Normalizer:
        fast_paths = FastPaths(encoder=encoder)
        normalizer = Normalizer.from_pretrained(small_model(name), fast_paths=fast_paths)
        engine = "tokenizers" if encoder == "tokenizers" else "fastokens"
        assert encoder_stats(normalizer).engine.startswith(engine)
        return normalizer

    return load


@pytest.mark.parametrize("name", sorted(SMALL_MODELS.keys() - SAME_VOCABULARY))
def test_every_encoder_gives_the_ids_of_the_reference(
    name: str,
    normalizer: Callable[[str], Normalizer],
    loaded: Callable[[str, str], Normalizer],
) -> None:
    models = [normalizer(name), loaded(name, "fastokens"), loaded(name, "tokenizers")]
    decoder = tokenizer_of(models[0]).backend.get_added_tokens_decoder()
    tokens = [token.content for token in decoder.values()]
    for text in islice(hostile_texts(random.Random(2026), tokens), 12):
        for special in (False, True):
            right = reference_ids(models[0], text, special=special)
            for model in models:
                ids = model.model.tokenizer.encode(text, add_special_tokens=special)
                assert ids.dtype == np.dtype(np.uint32)
                assert ids.tolist() == right, text


# An encoder that is loaded beside the reference

AT_ONCE = FastPaths(at_once=True)


@pytest.mark.parametrize("name", [MODEL, "small-gemma-3", "small-pixtral-hf"])
def test_fastokens_is_loaded_once_with_all_added_tokens(
    name: str, small_model: Callable[[str], Path], fake: FakeFastokens
) -> None:
    normalizer = Normalizer.from_pretrained(small_model(name), fast_paths=AT_ONCE)
    assert encoder_stats(normalizer).engine.startswith("fastokens")
    assert len(fake.loads) == 1


def test_tokens_without_an_id_in_the_files_are_loaded_too(
    changed_model: Callable[..., Path], fake: FakeFastokens
) -> None:
    def add(files: Any) -> None:
        files["tokenizer_config.json"]["extra_special_tokens"] = ["<|new|>"]

    normalizer = Normalizer.from_pretrained(changed_model(MODEL, add), fast_paths=AT_ONCE)
    assert encoder_stats(normalizer).engine.startswith("fastokens")
    assert len(fake.loads) == 2  # the first time it had other tokens than the reference
    text = "a <|new|> b" * 2000
    assert ids_of(normalizer, text) == reference_ids(normalizer, text)
    assert text in fake.texts


def test_the_reference_alone_is_not_loaded_beside_another(
    small_model: Callable[[str], Path], fake: FakeFastokens
) -> None:
    fast_paths = FastPaths(encoder="tokenizers", at_once=True)
    normalizer = Normalizer.from_pretrained(small_model(MODEL), fast_paths=fast_paths)
    assert encoder_stats(normalizer).engine.startswith("tokenizers")
    assert not fake.loads


# What stands in fastokens' way


def check_unfit(directory: Path, why: str, text: str = LONG) -> None:
    """Automatically the reference encodes, and says why; where fastokens must, nobody does."""
    for at_once in (False, True):
        normalizer = Normalizer.from_pretrained(directory, fast_paths=FastPaths(at_once=at_once))
        assert ids_of(normalizer, text) == reference_ids(normalizer, text)
        stats = encoder_stats(normalizer)
        assert stats.engine == f"tokenizers {tokenizers.__version__}"
        assert why in stats.why
    with pytest.raises(ModelError) as error:
        Normalizer.from_pretrained(directory, fast_paths=FastPaths(encoder="fastokens"))
    assert error.value.reason == Reason.FAST_ENCODER_UNAVAILABLE
    assert why in str(error.value)


def test_without_fastokens(
    small_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", None)
    check_unfit(small_model(MODEL), "fastokens is not installed")


def test_a_tokenizer_that_fastokens_does_not_load(changed_model: Callable[..., Path]) -> None:
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}
    parts = {"normalizer": None, "pre_tokenizer": {**metaspace, "split": False}}
    directory = changed_model("small-llava-1.5", lambda f: f["tokenizer.json"].update(parts))
    check_unfit(directory, "cannot load this tokenizer")


def test_one_other_id_in_one_probe_text(
    small_model: Callable[[str], Path], fake: FakeFastokens
) -> None:
    fake.lies = lambda text: "中文没有空格" in text and "snake_case" not in text
    check_unfit(small_model(MODEL), "has other IDs for the probe text")


def test_other_ids_only_where_special_tokens_are_added(
    small_model: Callable[[str], Path], fake: FakeFastokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = fake.encode_batch_flat

    def without_bos(texts: list[str], *, add_special_tokens: bool) -> Any:  # noqa: ARG001
        return honest(texts, add_special_tokens=False)

    monkeypatch.setattr(fake, "encode_batch_flat", without_bos)
    check_unfit(small_model("small-llava-1.5"), "has other IDs for the probe text", "the picture")


def test_tokens_that_only_the_configuration_has_are_proved_too(
    small_model: Callable[[str], Path], fake: FakeFastokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them an image placeholder would be a few ordinary tokens."""
    whole = fake.from_json_str

    def without_image_pad(serialized: str) -> Any:
        declared = json.loads(serialized)
        tokens = declared["added_tokens"]
        declared["added_tokens"] = [t for t in tokens if t["content"] != "<|image_pad|>"]
        return whole(json.dumps(declared))

    monkeypatch.setattr(fake, "from_json_str", without_image_pad)
    check_unfit(small_model(MODEL), "has other IDs for the probe text", "a <|image_pad|>" * 40)


def test_fastokens_that_raises_on_a_probe_text(
    small_model: Callable[[str], Path], fake: FakeFastokens
) -> None:
    fake.fails = lambda text: "\u200b" in text
    check_unfit(small_model(MODEL), "fastokens")


def test_a_text_that_fastokens_declines_is_encoded_by_the_reference(
    small_model: Callable[[str], Path], fake: FakeFastokens
) -> None:
    fast_paths = FastPaths(encoder="fastokens")
    normalizer = Normalizer.from_pretrained(small_model(MODEL), fast_paths=fast_paths)
    fake.fails = lambda text: "my cat" in text
    assert ids_of(normalizer, LONG) == reference_ids(normalizer, LONG)
    assert LONG in fake.texts
    fake.lies = lambda _: True  # for other texts it is still the one that is asked
    assert ids_of(normalizer, "a picture") != reference_ids(normalizer, "a picture")


def test_text_that_is_not_unicode_is_refused_alike(
    loaded: Callable[[str, str], Normalizer],
) -> None:
    for choice in EncoderChoice:
        for text in ("a \ud800", LONG * 100 + "\ud800", "\ud800" + LONG * 100):
            routing = loaded(MODEL, choice).normalize(prompt=text)
            assert routing.reason == Reason.INVALID_REQUEST, choice


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"encoder": "fastoken"}, r"encoder must be one of .*; did you mean 'fastokens'\?"),
        ({"encoder": "Tokenizers"}, r"did you mean 'tokenizers'\?"),
        ({"encoder": None}, "encoder must be one of auto, fastokens, tokenizers"),
        ({"text_cache_bytes": -1}, "text_cache_bytes must be a number of bytes or 0, found -1"),
        ({"text_cache_bytes": 1.5}, "text_cache_bytes must be"),
        ({"hash_cache_bytes": True}, "hash_cache_bytes must be"),
        ({"hash_cache_bytes": "64"}, "hash_cache_bytes must be"),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FastPaths(**wrong)


def test_a_choice_is_no_word() -> None:
    with pytest.raises(TypeError, match="fast_paths must be a FastPaths, found 'auto'"):
        Normalizer.from_pretrained(EMBEDDED_MODEL, fast_paths="auto")  # type: ignore[arg-type]  # on purpose


def test_fastokens_alone_where_another_library_encodes_chats() -> None:
    with pytest.raises(ModelError, match="mistral-common") as error:
        Normalizer.from_pretrained(EMBEDDED_MODEL, fast_paths=FastPaths(encoder="fastokens"))
    assert error.value.reason == Reason.FAST_ENCODER_UNAVAILABLE


def test_a_long_text_has_the_same_ids_and_lets_other_threads_run(
    normalizer: Callable[[str], Normalizer],
) -> None:
    """`encode` of tokenizers holds the interpreter's lock from its first byte to its last."""
    backend = tokenizer_of(normalizer(MODEL)).backend
    text = LONG * 200
    right = backend.encode(text, add_special_tokens=True).ids
    steps, stop = [0], threading.Event()

    def step() -> None:
        while not stop.wait(0.0005):
            steps[0] += 1

    def taken() -> int:
        before = steps[0]
        ids = ReferenceEncoder(backend, "").encode(text, add_special_tokens=True)
        found = steps[0] - before
        assert ids.tolist() == right
        return found

    stepping = threading.Thread(target=step)
    stepping.start()
    try:
        until(lambda: taken() > 10)  # one or two, where the lock is held
    finally:
        stop.set()
        stepping.join()
