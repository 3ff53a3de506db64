"""GGUF vocabularies have llama.cpp's IDs, and a file that is broken says so."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from generate_llama_cpp import CORPUS_SPECIALS, VECTORS, digest, vocabularies
from hostile_corpus import hostile_texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_vocabularies import SPECIALS, write_gguf_bpe, write_gguf_spm

from mmroute import ModelError, Normalizer, Reason, load_tokenizer
from mmroute.tokenizers.formats.gguf_header import read_header

EXPECTED = json.loads(VECTORS.read_text(encoding="ascii"))
TEXTS = list(hostile_texts(CORPUS_SPECIALS))
DIGITS = len(digest([]))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return dict(vocabularies(tmp_path_factory.mktemp("gguf")))


def test_the_corpus_is_the_one_that_llama_cpp_was_asked_about(files: dict[str, Path]) -> None:
    assert hashlib.sha256("\0".join(TEXTS).encode()).hexdigest() == EXPECTED["corpus"]
    assert files.keys() == EXPECTED["ids"].keys()


@pytest.mark.conformance
@pytest.mark.parametrize("name", EXPECTED["ids"])
def test_the_ids_are_those_of_llama_cpp(name: str, files: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(files[name])
    digests = EXPECTED["ids"][name]
    for at, text in enumerate(TEXTS):
        expected = digests[at * DIGITS : (at + 1) * DIGITS]
        ids = tokenizer.encode(text, add_special_tokens=True).tolist()
        assert digest(ids) == expected, f"text {at}: {text[:80]!r}"


def test_what_the_file_says_of_itself(files: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(files["bpe/qwen2"])
    assert tokenizer.format == "gguf"
    assert tokenizer.chat_template == "{{ messages }}"
    assert list(tokenizer.special_tokens) == list(SPECIALS)
    assert "llama.cpp" in tokenizer.notes[0]
    assert tokenizer.token(tokenizer.vocab_size - 1) == "[PAD1]"
    assert tokenizer.fingerprint is None  # the weights stand behind the header


@pytest.mark.parametrize("name", ["bpe/qwen2", "bpe/gpt-4o", "spm/flags"])
def test_text_comes_back(name: str, files: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(files[name])
    for whole in TEXTS:
        text = whole[:5_000]
        expected = text.replace("\u2581", " ") if name == "spm/flags" else text
        assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_special_tokens_are_left_out_but_not_what_is_only_user_defined(
    files: dict[str, Path],
) -> None:
    tokenizer = load_tokenizer(files["bpe/qwen2"])
    ids = tokenizer.encode("<|im_start|>Hello<think><|im_end|>")
    assert tokenizer.decode(ids) == "<|im_start|>Hello<think><|im_end|>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Hello<think>"
    last = tokenizer.vocab_size - 1
    assert tokenizer.decode([*tokenizer.encode("aÿé"), last]) == "aÿé"  # unused: no text


def test_the_header_is_read_as_the_gguf_library_reads_it(files: dict[str, Path]) -> None:
    for name in ("bpe/qwen2", "spm/flags"):
        found = read_header(files[name], lambda _: True)
        reader = gguf.GGUFReader(files[name])
        expected = {
            key: field.contents()
            for key, field in reader.fields.items()
            if not key.startswith("GGUF.")
        }
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert np.array_equal(np.array(found[key]), np.array(value)), key


@pytest.mark.parametrize(
    ("key", "value", "reason", "words"),
    [
        ("tokenizer.ggml.model", "rwkv", Reason.UNSUPPORTED_TOKENIZER, "'rwkv'"),
        ("tokenizer.ggml.model", "plamo2", Reason.UNSUPPORTED_TOKENIZER, "'plamo2'"),
        ("tokenizer.ggml.pre", "qwen22", Reason.UNSUPPORTED_TOKENIZER, "did you mean 'qwen2'?"),
        ("tokenizer.ggml.pre", "kimi-k2", Reason.UNSUPPORTED_TOKENIZER, "'kimi-k2'"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    key: str, value: str, reason: Reason, words: str, tmp_path: Path
) -> None:
    path = _with_text(write_gguf_bpe(tmp_path / "a.gguf", "qwen2"), key, value)
    with pytest.raises(ModelError, match=words) as caught:
        load_tokenizer(path)
    assert caught.value.reason is reason
    assert str(path) in str(caught.value)


def _with_text(path: Path, key: str, value: str) -> Path:
    """The file with another value of a text."""
    content = path.read_bytes()
    at = content.index(key.encode()) + len(key) + 4
    (length,) = struct.unpack_from("<Q", content, at)
    encoded = struct.pack("<Q", len(value)) + value.encode()
    path.write_bytes(content[:at] + encoded + content[at + 8 + length :])
    return path


def test_a_type_that_there_is_not_is_named(tmp_path: Path) -> None:
    path = write_gguf_spm(tmp_path / "a.gguf")
    content = bytearray(path.read_bytes())
    key = b"tokenizer.ggml.token_type"
    struct.pack_into("<i", content, content.index(key) + len(key) + 16, -7)
    path.write_bytes(bytes(content))
    with pytest.raises(ModelError, match="token_type has a type -7") as caught:
        load_tokenizer(path)
    assert caught.value.reason is Reason.MALFORMED_FILE


@pytest.mark.parametrize("score", [float("nan"), float("inf"), 1e300])
def test_a_score_that_is_no_number_is_named(score: float, tmp_path: Path) -> None:
    """As numbers of 64 bits, which hold more than llama.cpp's."""
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "a"])
    writer.add_key_value(
        "tokenizer.ggml.scores", [0.0, score], gguf.GGUFValueType.ARRAY,
        sub_type=gguf.GGUFValueType.FLOAT64,
    )  # fmt: skip
    writer.write_header_to_file(tmp_path / "a.gguf")
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match="scores has a value that is not finite") as caught:
        load_tokenizer(tmp_path / "a.gguf")
    assert caught.value.reason is Reason.MALFORMED_FILE


def test_a_merge_that_is_not_of_two_parts_is_named(tmp_path: Path) -> None:
    path = write_gguf_bpe(tmp_path / "a.gguf", "qwen2")
    content = path.read_bytes()
    assert b"\x03\0\0\0\0\0\0\0a b" in content
    path.write_bytes(content.replace(b"\x03\0\0\0\0\0\0\0a b", b"\x03\0\0\0\0\0\0\0aab"))
    with pytest.raises(ModelError, match=r"merges has 'aab'") as caught:
        load_tokenizer(path)
    assert caught.value.reason is Reason.MALFORMED_FILE


@pytest.mark.parametrize(
    "content",
    [
        b"GGUF",
        b"GGUF" + struct.pack("<I", 1) + bytes(40),
        b"GGUF" + struct.pack(">I", 3) + bytes(40),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 62) + b"a",
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sI", 1, b"a", 99) + bytes(8),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 0),
    ],
    ids=["only magic", "version 1", "big-endian", "keys", "key length", "value type", "no keys"],
)
def test_a_broken_header_is_a_model_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        load_tokenizer(path)
    assert caught.value.reason is Reason.MALFORMED_FILE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_no_damage_is_anything_but_a_model_error(data: st.DataObject, tmp_path: Path) -> None:
    content = write_gguf_spm(tmp_path / "a.gguf").read_bytes()
    cut = data.draw(st.integers(4, len(content)))
    at = data.draw(st.integers(4, len(content) - 8))
    damage = data.draw(st.binary(min_size=1, max_size=8))
    broken = bytearray(content)
    broken[at : at + len(damage)] = damage
    path = tmp_path / "broken.gguf"
    path.write_bytes(bytes(broken[:cut]))
    reason = None
    try:
        load_tokenizer(path).encode("Hello world", add_special_tokens=True)
    except ModelError as error:
        reason = error.reason
    assert reason in (None, Reason.MALFORMED_FILE, Reason.UNSUPPORTED_TOKENIZER)


def test_the_engine_takes_no_gguf(files: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match="original model") as caught:
        Normalizer.from_pretrained(str(files["spm"]))
    assert caught.value.reason is Reason.TOKENIZER_UNVERIFIED
