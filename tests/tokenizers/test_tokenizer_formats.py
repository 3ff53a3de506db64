"""Every format gives the IDs and texts of its reference, on texts on which tokenizers differ."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import itertools
import json
import random
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import mistral_common
import numpy as np
import pytest
import sentencepiece
import tiktoken
import tokenizers
import transformers
from hostile_corpus import hostile_texts
from hypothesis import given, settings
from hypothesis import strategies as st
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from paths import real_models
from small_vocabularies import (
    SPECIALS,
    byte_pairs,
    write_ranks,
    write_vocab_and_merges,
    written,
)
from tiktoken.load import load_tiktoken_bpe

import mmroute
from mmroute import ModelError, Normalizer, Reason, load_tokenizer
from mmroute.tokenizers.facade import LoadedTokenizer
from mmroute.tokenizers.fingerprint import fingerprint
from mmroute.tokenizers.formats import tiktoken_ranks

MISTRAL = Path(mistral_common.__file__).parent / "data"
SPM = MISTRAL / "tokenizer.model.v1"
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LONGEST = 10_000  # characters; beyond 4,096 a text is encoded by another call
Encode = Callable[[str], Iterable[int]]


def same_ids(
    ours: LoadedTokenizer, reference: Encode, *, special: bool = False, every: int = 1
) -> None:
    """Of all texts, or of every tenth; of these too with what is put around each alike."""
    texts = hostile_texts(list(ours.special_tokens))
    for text in itertools.islice(texts, None, None, 10 if special else every):
        shown = text[:LONGEST]
        ids = ours.encode(shown, add_special_tokens=special)
        assert ids.dtype == np.uint32
        assert ids.tolist() == list(reference(shown)), text[:80]


def same_texts(ours: LoadedTokenizer, reference: Callable[[list[int]], str], **how: bool) -> None:
    chosen = random.Random(7)
    for length in (0, 1, 1, 2, 3, 5, 8, 13) * 10:
        ids = [chosen.randrange(ours.vocab_size) for _ in range(length)]
        assert ours.decode(ids, **how) == reference(ids), ids


# tokenizer.json, vocab.json with merges.txt


def test_a_tokenizer_json_is_what_tokenizers_reads(small_model: Callable[[str], Path]) -> None:
    path = small_model("small-qwen2.5-vl") / "tokenizer.json"
    reference = tokenizers.Tokenizer.from_file(str(path))
    ours = load_tokenizer(path)
    assert ours.format == "tokenizer.json"
    same_ids(ours, lambda text: reference.encode(text, add_special_tokens=False).ids)
    same_ids(ours, lambda text: reference.encode(text).ids, special=True)
    for skip in (False, True):
        decode = functools.partial(reference.decode, skip_special_tokens=skip)
        same_texts(ours, decode, skip_special_tokens=skip)


def test_a_known_family_is_read_as_the_engine_reads_it(
    small_model: Callable[[str], Path], normalizer: Callable[[str], Normalizer]
) -> None:
    for name in ("small-llava-1.5", "small-gemma-3", "small-qwen3-vl"):
        ours = load_tokenizer(small_model(name))
        assert ours.notes == ()
        engine = normalizer(name).model.tokenizer
        same_ids(ours, functools.partial(engine.encode, add_special_tokens=False), every=10)


def _unusual_directory(root: Path, model_type: str, config: dict[str, Any]) -> Path:
    """A directory of an unknown family whose pipeline no class of transformers writes."""
    tokens, merges = byte_pairs()
    vocabulary = {written(token): i for i, token in enumerate(tokens)}
    pairs = [(written(a), written(b)) for a, b in merges]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=pairs))
    backend.normalizer = tokenizers.normalizers.Replace("e", "!")
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    root.mkdir(exist_ok=True)
    backend.save(str(root / "tokenizer.json"))
    for name, content in (
        ("config.json", {"model_type": model_type}),
        ("tokenizer_config.json", config),
    ):
        (root / name).write_text(json.dumps(content), encoding="utf-8")
    return root


@pytest.mark.parametrize("declared", [None, "PreTrainedTokenizerFast", "GPT2Tokenizer"])
@pytest.mark.parametrize(
    "model_type", ["qwen2", "qwen3", "llama", "phi3", "deepseek_v3", "mistral", "gpt_neox"]
)
def test_a_file_is_read_by_the_class_that_the_engine_takes(
    model_type: str, declared: str | None, tmp_path: Path
) -> None:
    config = {} if declared is None else {"tokenizer_class": declared}
    directory = _unusual_directory(tmp_path, model_type, config)
    ours = load_tokenizer(directory)
    reference = transformers.AutoTokenizer.from_pretrained(directory, mistral_format=False)
    assert ours.notes == ()
    for text in ("the", "e\u0301 the", "<|endoftext|>"):
        assert reference.encode(text) == ours.encode(text, add_special_tokens=True).tolist()


@pytest.mark.parametrize(
    "config",
    [
        {"tokenizer_class": "CodeLlamaTokenizer"},
        {"tokenizer_class": "GPT2Tokenizer", "auto_map": {"AutoTokenizer": [None, "own.Own"]}},
        {"tokenizer_class": "GPT2Tokenizer", "split_special_tokens": True},
    ],
)
def test_what_the_engine_may_build_anew_is_read_as_written_and_noted(
    config: dict[str, Any], tmp_path: Path
) -> None:
    ours = load_tokenizer(_unusual_directory(tmp_path, "llama", config))
    (note,) = ours.notes
    assert "as it is written" in note
    assert ours.encode("the").tolist() == ours.encode("th!").tolist()


@pytest.mark.parametrize(
    "config",
    [
        {"tokenizer_class": "Qwen2Tokenizer"},
        {"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|im_end|>"},
        {"tokenizer_class": "GPT2Tokenizer"},
        {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True},
        {
            "tokenizer_class": "GPT2TokenizerFast",
            "add_bos_token": True,
            "bos_token": "<|im_start|>",
        },
    ],
)
def test_vocab_and_merges_are_what_transformers_reads(
    config: dict[str, Any], tmp_path: Path
) -> None:
    # A class whose special tokens have their default names adds those; here all are named.
    named = {"unk_token": SPECIALS[0], "eos_token": SPECIALS[0], "pad_token": SPECIALS[0]}
    named |= {"bos_token": SPECIALS[1]}
    directory = write_vocab_and_merges(tmp_path, named | config)
    reference = transformers.AutoTokenizer.from_pretrained(directory)
    ours = load_tokenizer(directory)
    assert ours.format == "vocab.json"
    assert ours.vocab_size == len(reference)
    every = 1 if config.keys() == {"tokenizer_class"} else 10  # what else there is, is put around
    for special in (False, True):
        encode = functools.partial(reference.encode, add_special_tokens=special)
        same_ids(ours, encode, special=special, every=every)
    for skip in (False, True):
        decode = functools.partial(reference.decode, skip_special_tokens=skip)
        same_texts(ours, decode, skip_special_tokens=skip)


def test_a_class_that_splits_in_another_way_is_refused(tmp_path: Path) -> None:
    directory = write_vocab_and_merges(tmp_path, {"tokenizer_class": "Qwen2Tokeniser"})
    with pytest.raises(ModelError, match="did you mean 'Qwen2Tokenizer'") as caught:
        load_tokenizer(directory)
    assert caught.value.reason is Reason.UNSUPPORTED_TOKENIZER


def test_a_class_may_put_a_space_in_front(tmp_path: Path) -> None:
    config = {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": True}
    directory = write_vocab_and_merges(tmp_path, config)
    reference = transformers.AutoTokenizer.from_pretrained(directory)
    assert reference.encode("the") == load_tokenizer(directory).encode("the").tolist()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": 0, "b": 0}', "the ID 0 to 'a' and to 'b'"),
        ('{"a": 0, "a": 1}', "a token twice"),
        ('{"a": []}', "no BPE"),
        ("[1, 2", "is not JSON"),
    ],
)
def test_a_vocab_json_that_is_not_one_is_refused(content: str, words: str, tmp_path: Path) -> None:
    directory = write_vocab_and_merges(tmp_path, {"tokenizer_class": "Qwen2Tokenizer"})
    (directory / "vocab.json").write_text(content, encoding="ascii")
    with pytest.raises(ModelError, match=words) as caught:
        load_tokenizer(directory)
    assert caught.value.reason is Reason.MALFORMED_FILE


# SentencePiece


def _spm_directory(root: Path, config: dict[str, Any]) -> Path:
    root.mkdir(exist_ok=True)
    shutil.copy(SPM, root / "tokenizer.model")
    (root / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return root


def _between(text: str, tokens: Sequence[str]) -> list[str]:
    """A text cut at tokens that do not overlap."""
    return [part for part in re.split(f"({'|'.join(map(re.escape, tokens))})", text) if part]


@pytest.mark.parametrize("legacy", [None, True, False])
def test_pieces_between_added_tokens_are_those_of_sentencepiece(
    legacy: bool | None, tmp_path: Path
) -> None:
    """The reference for no leading space is transformers' trick of version 4, to encode behind
    something and take that away; here behind a byte, which is in no piece and merges with nothing.
    """
    reference = sentencepiece.SentencePieceProcessor(model_file=str(SPM))
    added = {"<unk>": 0, "<s>": 1, "</s>": 2, "<image>": 32000}
    config = {"added_tokens_decoder": {"32000": {"content": "<image>", "special": True}}}
    ours = load_tokenizer(_spm_directory(tmp_path, config | {"legacy": legacy}))
    behind = reference.encode("\x01")

    def expected(text: str) -> list[int]:
        ids: list[int] = []
        for number, part in enumerate(_between(text, list(added))):
            if part in added:
                ids.append(added[part])
            elif legacy is not False or number == 0:
                ids += reference.encode(part)
            else:
                whole = reference.encode("\x01" + part)
                assert whole[: len(behind)] == behind
                ids += whole[len(behind) :]
        return ids

    same_ids(ours, expected)
    same_ids(ours, lambda text: [1, *expected(text)], special=True)
    assert "not promised" in ours.notes[0]


def test_sentencepiece_decodes_what_is_between_added_tokens(tmp_path: Path) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_file=str(SPM))
    ours = load_tokenizer(_spm_directory(tmp_path, {}))

    def without(ids: list[int]) -> str:
        text: str = reference.decode([i for i in ids if i > 2])
        return text

    same_texts(ours, without, skip_special_tokens=True)
    ids = ours.encode("Hello<s> world</s>", add_special_tokens=True)
    assert ours.decode(ids) == "<s> Hello<s>  world</s>"


def test_a_token_with_the_id_of_a_piece_is_noted(tmp_path: Path) -> None:
    piece = sentencepiece.SentencePieceProcessor(model_file=str(SPM)).id_to_piece(22557)
    config = {"added_tokens_decoder": {"22557": {"content": "<image>", "special": True}}}
    ours = load_tokenizer(_spm_directory(tmp_path, config))
    assert f"'<image>' of {piece!r}" in ours.notes[1]
    assert ours.encode("Hello<image>").tolist() == [22557, 22557]


def test_a_piece_cannot_get_another_id(tmp_path: Path) -> None:
    config = {"added_tokens_decoder": {"32000": {"content": "</s>", "special": True}}}
    with pytest.raises(ModelError, match="the ID 32000, and the model 2") as caught:
        load_tokenizer(_spm_directory(tmp_path, config))
    assert caught.value.reason is Reason.SPECIAL_TOKEN_SPLIT


def test_what_a_configuration_puts_around_a_sequence(tmp_path: Path) -> None:
    config = {"add_bos_token": False, "add_eos_token": True}
    ours = load_tokenizer(_spm_directory(tmp_path, config))
    assert ours.encode("", add_special_tokens=True).tolist() == [2]


def test_a_piece_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(SPM.read_bytes().replace(b"</s>", b"</\xff>", 1))
    with pytest.raises(ModelError, match="not UTF-8") as caught:
        load_tokenizer(path)
    assert caught.value.reason is Reason.MALFORMED_FILE


# mistral-common


@pytest.mark.parametrize("path", sorted(MISTRAL.glob("*.model.v*")), ids=lambda path: path.name)
def test_mistral_models_are_what_mistral_common_reads(path: Path) -> None:
    reference: Any = MistralTokenizer.from_file(str(path)).instruct_tokenizer.tokenizer
    ours = load_tokenizer(path)
    assert ours.format == "mistral sentencepiece"
    same_ids(ours, lambda text: reference.encode(text, bos=False, eos=False))
    same_ids(ours, lambda text: reference.encode(text, bos=True, eos=False), special=True)
    same_texts(ours, reference.decode, skip_special_tokens=True)


def test_tekken_is_what_mistral_common_reads() -> None:
    path = MISTRAL / "tekken_240911.json"
    reference: Any = MistralTokenizer.from_file(str(path)).instruct_tokenizer.tokenizer
    ours = _tekken()
    assert ours.format == "tekken"
    same_ids(ours, lambda text: reference.encode(text, bos=False, eos=False))
    same_texts(ours, reference.decode, skip_special_tokens=True)
    assert ours.decode(ours.encode("[INST] é", add_special_tokens=True)) == "<s>[INST] é"
    assert ours.token_id("[INST]") == 3


# tiktoken


def _rank_directory(root: Path, config: dict[str, Any] | None = None) -> Path:
    write_ranks(root / "small.tiktoken")
    if config is not None:
        (root / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return root


def test_a_rank_file_is_what_tiktoken_reads(tmp_path: Path) -> None:
    first = len(byte_pairs()[0])
    added = {
        str(first + 10): {"content": "<|endoftext|>", "special": True},
        str(first + 12): {"content": "<tool>", "special": False},
    }
    config = {"added_tokens_decoder": added, "eos_token": "<|endoftext|>", "add_eos_token": True}
    directory = _rank_directory(tmp_path, config)
    ranks = load_tiktoken_bpe(str(directory / "small.tiktoken"))
    specials = {"<|endoftext|>": first + 10, "<tool>": first + 12}
    reference = tiktoken.Encoding(
        "x", pat_str=CL100K, mergeable_ranks=ranks, special_tokens=specials
    )
    ours = load_tokenizer(directory)
    assert ours.format == "tiktoken"
    assert "does not say which expression cuts the text" in ours.notes[0]
    same_ids(ours, lambda text: reference.encode(text, allowed_special="all"))
    ids = ours.encode("<tool>ab<|endoftext|>", add_special_tokens=True)
    assert ids.tolist()[-2:] == [first + 10] * 2
    assert ours.decode(ids, skip_special_tokens=True) == "<tool>ab"
    assert ours.decode([first + 11]) == ""  # a gap


def _lines(tokens: Iterable[bytes]) -> list[str]:
    return [f"{base64.b64encode(token).decode()} {i}" for i, token in enumerate(tokens)]


def _ranks_of_class(root: Path, name: str, lines: Sequence[str]) -> Path:
    root.mkdir(exist_ok=True)
    (root / "tiktoken.model").write_text("\n".join([*lines, ""]), encoding="ascii")
    config = json.dumps({"tokenizer_class": name})
    (root / "tokenizer_config.json").write_text(config, encoding="ascii")
    return root


def test_a_class_whose_code_is_known_needs_no_guess(tmp_path: Path) -> None:
    tokens = byte_pairs()[0]
    # QWenTokenizer's special tokens begin at 151643, whatever the file has.
    filled = [*tokens, *(b"\xff\xfe" + i.to_bytes(4) for i in range(151643 - len(tokens)))]
    ours = load_tokenizer(_ranks_of_class(tmp_path, "QWenTokenizer", _lines(filled)))
    assert ours.notes == ()
    assert list(ours.special_tokens)[:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert ours.special_tokens["<|endoftext|>"] == 151643
    assert ours.special_tokens["<|extra_204|>"] == 151643 + 207
    assert ours.encode("e\u0301").tolist() == ours.encode("é").tolist()


@pytest.mark.parametrize("name", ["QWenTokenizer", "TikTokenTokenizer"])
def test_a_file_that_lacks_ranks_of_its_class_is_refused(name: str, tmp_path: Path) -> None:
    lines = _lines(byte_pairs()[0])
    gap = [*lines[:-2], lines[-1]]
    with pytest.raises(ModelError, match="needs every rank below") as caught:
        load_tokenizer(_ranks_of_class(tmp_path, name, gap))
    assert caught.value.reason is Reason.MALFORMED_FILE


def test_kimi_cuts_long_texts_before_it_encodes_them(tmp_path: Path) -> None:
    """Expected: what its class gives to tiktoken part by part."""
    tokens = [*(bytes([i]) for i in range(256)), b"aa", b"  "]
    directory = _ranks_of_class(tmp_path, "TikTokenTokenizer", _lines(tokens))
    ours = load_tokenizer(directory)
    assert ours.special_tokens["<|reserved_token_258|>"] == 258
    encoding = ours._codec.encoding  # type: ignore[attr-defined]  # the reference: tiktoken

    def expected(*parts: str) -> list[int]:
        return [i for part in parts for i in encoding.encode(part, allowed_special="all")]

    run = "b" + "a" * 24_999
    assert ours.encode(run).tolist() == expected(run)
    assert ours.encode(f"{run}aaa").tolist() == expected(run, "aaa") != expected(f"{run}aaa")
    assert ours.encode(f"x {run}{run}\u3000").tolist() == expected(f"x {run}", f"{run}\u3000")
    spaces = " " * 25_001
    assert ours.encode(f"a{spaces}b").tolist() == expected(f"a{spaces[1:]}", " b")
    long = "aab " * 99_999 + "aabaa"  # the 400,000 characters end within its last pair
    assert ours.encode(long).tolist() == expected(long[:400_000], long[400_000:])
    assert ours.encode(long).tolist() != expected(long)
    assert ours.encode("").tolist() == []


def test_a_published_file_is_not_promised_to_be_the_engines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write_ranks(tmp_path / "a.tiktoken")
    name = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(tiktoken_ranks._PUBLISHED, name, tiktoken_ranks._Rule(r"."))
    assert "the publisher's IDs" in load_tokenizer(path).notes[0]


def test_a_special_token_that_begins_another_is_refused(tmp_path: Path) -> None:
    first = len(byte_pairs()[0])
    added = {str(first + i): {"content": t} for i, t in enumerate(["[T", "[S]", "[T]"])}
    with pytest.raises(ModelError, match=r"'\[T' begins '\[T\]'"):
        load_tokenizer(_rank_directory(tmp_path, {"added_tokens_decoder": added}))


def test_a_text_on_which_tiktoken_gives_up_is_named(tmp_path: Path) -> None:
    ours = load_tokenizer(_rank_directory(tmp_path))
    with pytest.raises(ValueError, match="cannot cut this text of 1500001 characters"):
        ours.encode(" " * 1_500_000 + "a")


def test_offsets_of_bytes_of_one_character_are_that_character(tmp_path: Path) -> None:
    ours = load_tokenizer(_rank_directory(tmp_path))
    text = "a🦤 the"
    assert ours.offsets(text) == [(0, 1), *[(1, 2)] * 3, (2, 6)]  # of 4 bytes two are one token


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"YQ== 0\n", "no token for byte 0"),
        (b"YQ== 0\n!!! 1\n", "line 2"),
        (b"YQ== 0\nYg==\n", "line 2"),
        (b"YQ== 0\nYg== -1\n", "line 2"),
        (b"YQ== 0\nYg== 2_5\n", "line 2"),
        (b"YQ== 0\nYg== 4294967296\n", "line 2"),
        (b"YQ== 0\nYQ== 1\n", "has the rank 0 already"),
    ],
)
def test_a_broken_rank_file_is_named(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tiktoken"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=words) as caught:
        load_tokenizer(path)
    assert caught.value.reason is Reason.MALFORMED_FILE


@pytest.mark.parametrize(
    ("token_id", "text", "words"), [(300, "", "empty text"), (2**32, "<x>", "4294967296")]
)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "added_tokens.json"])
def test_an_added_token_that_is_none_is_refused(
    token_id: int, text: str, words: str, file: str, tmp_path: Path
) -> None:
    decoder = {"added_tokens_decoder": {str(token_id): {"content": text, "special": True}}}
    content = decoder if file == "tokenizer_config.json" else {text: token_id}
    write_vocab_and_merges(tmp_path, {"tokenizer_class": "Qwen2Tokenizer"})
    vocabularies = [tmp_path / "vocab.json", write_ranks(tmp_path / "a.tiktoken")]
    vocabularies.append(Path(shutil.copy(SPM, tmp_path / "tokenizer.model")))
    (tmp_path / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    (tmp_path / file).write_text(json.dumps(content), encoding="utf-8")
    for vocabulary in vocabularies:
        with pytest.raises(ModelError, match=words) as caught:
            load_tokenizer(vocabulary)
        assert caught.value.reason is Reason.MALFORMED_FILE


def test_a_rank_file_that_cannot_be_had_says_where_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: str) -> bytes:
        raise OSError("no network")

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tiktoken.load.read_file", refuse)
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    with pytest.raises(ModelError, match=r"no network.*TIKTOKEN_CACHE_DIR") as caught:
        load_tokenizer("gpt-3.5-turbo-0125")
    assert caught.value.reason is Reason.MODEL_NOT_FOUND


# The facade


def test_a_tokenizer_of_ones_own() -> None:
    ours = load_tokenizer("own_tokenizers:Reversed")
    assert ours.encode("ab", add_special_tokens=True).tolist() == [98, 97, 0]
    assert ours.encode_batch(["a", "bc"])[1].tolist() == [99, 98]
    assert ours.decode(ours.encode("Hello")) == "Hello"
    assert ours.fingerprint is None
    assert ours.chat_template is None
    smallest = load_tokenizer("own_tokenizers:Smallest")
    assert smallest.encode("é", add_special_tokens=True).tolist() == [195, 169]
    assert smallest.decode([195, 169], skip_special_tokens=True) == "é"
    assert (smallest.token(195), smallest.offsets("é")) == (None, None)
    with pytest.raises(ModelError, match=r"it has no .*decode"):
        load_tokenizer("own_tokenizers:WithoutDecode")
    with pytest.raises(ModelError, match="could not be imported") as caught:
        load_tokenizer("own_tokenizers:Missing")
    assert caught.value.reason is Reason.MODEL_NOT_FOUND


def test_a_tokenizer_of_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("acme", "own_tokenizers:Reversed", "mmroute.tokenizers")

    def installed(**wanted: str) -> list[importlib.metadata.EntryPoint]:
        return [point] if all(getattr(point, k) == v for k, v in wanted.items()) else []

    monkeypatch.setattr(importlib.metadata, "entry_points", installed)
    assert load_tokenizer("acme").encode("ab").tolist() == [98, 97]


def test_an_entry_point_is_loaded_as_packages_declare_it(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"acme": "own_tokenizers:Reversed [fast]", "broken": "own_tokenizers"}

    def installed(group: str, name: str) -> list[importlib.metadata.EntryPoint]:
        return [importlib.metadata.EntryPoint(name, values[name], group)]

    monkeypatch.setattr(importlib.metadata, "entry_points", installed)
    assert load_tokenizer("acme").encode("ab").tolist() == [98, 97]
    with pytest.raises(ModelError, match="own_tokenizers could not be imported and called"):
        load_tokenizer("broken")


def test_the_highest_version_is_taken(tmp_path: Path) -> None:
    shutil.copy(SPM, tmp_path / "tokenizer.model.v1")
    shutil.copy(MISTRAL / "mistral_instruct_tokenizer_240323.model.v3", tmp_path)
    (tmp_path / "mistral_instruct_tokenizer_240323.model.v3").rename(
        tmp_path / "tokenizer.model.v3"
    )
    shutil.copy(tmp_path / "tokenizer.model.v3", tmp_path / "tokenizer.model.v11")
    tokenizer = load_tokenizer(tmp_path)
    assert "tokenizer.model.v11" in tokenizer.files


def test_an_unknown_name_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"OpenAI's; did you mean 'gpt-4o'\?") as caught:
        load_tokenizer("gtp-4o")
    assert caught.value.reason is Reason.MODEL_NOT_FOUND
    with pytest.raises(ModelError, match=r"did you mean 'cl100k_base'\?"):
        load_tokenizer("cl100k_bas")
    with pytest.raises(ModelError, match="There is no directory"):
        load_tokenizer("./nowhere/at/all")


def test_a_directory_without_a_tokenizer_lists_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"tokenizer\.json.*It has: model\.safetensors") as caught:
        load_tokenizer(tmp_path)
    assert caught.value.reason is Reason.MISSING_FILE


def test_only_models_of_the_hub_have_revisions(tmp_path: Path) -> None:
    directory = str(_rank_directory(tmp_path))
    for source in (directory, f"{directory}/small.tiktoken", "own_tokenizers:Reversed"):
        with pytest.raises(ModelError, match="has no revision 'v2'"):
            load_tokenizer(source, revision="v2")


def test_a_directory_of_two_formats_says_that_the_engine_chooses_by_the_weights(
    changed_model: Callable[..., Path],
) -> None:
    directory = changed_model("small-mistral3", lambda files: files)
    (directory / "params.json").write_text("{}", encoding="utf-8")
    shutil.copy(MISTRAL / "tekken_240911.json", directory / "tekken.json")
    tokenizer = load_tokenizer(directory)
    assert tokenizer.format == "tokenizer.json"
    assert "by the weights" in tokenizer.notes[0]


def test_the_configuration_s_flags_of_a_token_are_the_engine_s(
    tmp_path: Path, small_model: Callable[[str], Path]
) -> None:
    shutil.copy(small_model("small-qwen2.5-vl") / "tokenizer.json", tmp_path)
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    token_id = backend.token_to_id("<|im_end|>")
    added = {str(token_id): {"content": "<|im_end|>", "special": True, "rstrip": True}}
    config = json.dumps({"added_tokens_decoder": added})
    (tmp_path / "tokenizer_config.json").write_text(config, encoding="utf-8")
    ours = load_tokenizer(tmp_path)
    assert ours.notes == ()
    assert ours.encode("<|im_end|>  a").tolist() == ours.encode("<|im_end|>a").tolist()


def test_content_decides_and_not_the_name(tmp_path: Path) -> None:
    write_ranks(tmp_path / "tokenizer.model")
    assert load_tokenizer(tmp_path).format == "tiktoken"
    shutil.copy(SPM, tmp_path / "tokenizer.model")
    assert load_tokenizer(tmp_path).format == "sentencepiece"
    assert load_tokenizer(shutil.copy(SPM, tmp_path / "x.bin")).format == "sentencepiece"
    (tmp_path / "some.json").symlink_to(MISTRAL / "tekken_240911.json")
    assert load_tokenizer(tmp_path / "some.json").format == "tekken"
    (tmp_path / "y").write_text("just text", encoding="utf-8")
    with pytest.raises(ModelError, match="none of these") as caught:
        load_tokenizer(tmp_path / "y")
    assert caught.value.reason is Reason.UNSUPPORTED_TOKENIZER


def test_ids_that_are_none_are_refused(tmp_path: Path) -> None:
    ours = load_tokenizer(_rank_directory(tmp_path))
    for wrong in ([-1], [0, ours.vocab_size], np.array([2**31], np.uint32)):
        with pytest.raises(ValueError, match="is not in 0"):
            ours.decode(wrong)
        with pytest.raises(ValueError, match="is not in 0"):
            ours.convert_ids_to_tokens(wrong)
    assert ours.token(-1) is None
    assert ours.decode([]) == ""


def test_a_lone_surrogate_is_refused_by_every_format(
    tmp_path: Path, small_model: Callable[[str], Path]
) -> None:
    sources = [
        small_model("small-qwen2.5-vl"), _rank_directory(tmp_path / "a"), SPM,
        _spm_directory(tmp_path / "b", {}), MISTRAL / "tekken_240911.json",
    ]  # fmt: skip
    for source in sources:
        with pytest.raises(ValueError, match="surrogate"):
            load_tokenizer(source).encode("a\ud800b")


@settings(deadline=None)  # the first one loads it
@given(text=st.text(max_size=200))
def test_byte_level_text_comes_back(text: str) -> None:
    tokenizer = _tekken()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.convert_ids_to_tokens(tokenizer.encode(text))) == len(
        tokenizer.encode(text)
    )


@functools.cache
def _tekken() -> LoadedTokenizer:
    return load_tokenizer(MISTRAL / "tekken_240911.json")


def test_the_fingerprint_is_of_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"one")
    (tmp_path / "y").write_bytes(b"two")
    expected = hashlib.sha256()
    for name, content in (("a/é", b"two"), ("b", b"one")):
        encoded = name.encode()
        expected.update(len(encoded).to_bytes(4, "little") + encoded)
        expected.update(hashlib.sha256(content).digest())
    found = fingerprint({"b": tmp_path / "x", "a/é": tmp_path / "y"})
    assert found == expected.hexdigest()


def test_the_fingerprint_follows_what_decides(
    changed_model: Callable[..., Path], small_model: Callable[[str], Path]
) -> None:
    name = "small-qwen2.5-vl"
    before = load_tokenizer(small_model(name)).fingerprint
    other = changed_model(name, lambda files: files["preprocessor_config.json"].update(x=1))
    assert load_tokenizer(other).fingerprint == before
    (other / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    assert load_tokenizer(other).fingerprint != before


def test_a_directory_with_another_vocabulary_is_not_promised(
    changed_model: Callable[..., Path],
) -> None:
    directory = changed_model("small-llava-1.5", lambda files: files.pop("tokenizer.json"))
    shutil.copy(SPM, directory / "tokenizer.model")
    with pytest.raises(ModelError, match=r"only tokenizer\.model") as caught:
        Normalizer.from_pretrained(str(directory))
    assert caught.value.reason is Reason.TOKENIZER_UNVERIFIED


def test_load_tokenizer_is_found_where_it_is_looked_for() -> None:
    assert "load_tokenizer" in mmroute.__all__
    assert mmroute.load_tokenizer is load_tokenizer
    with pytest.raises(AttributeError, match="load_tokenisers"):
        _ = mmroute.load_tokenisers


if (MODELS := real_models()) is not None:
    ROOT: Path = MODELS
    # Of these transformers makes the tokenizer that vLLM has; the others need remote code, or are
    # given to mistral-common by it.
    REAL = (
        "gemma-3-4b-it", "llava-1.5-7b-hf", "llava-next-video-7b-32k-hf-finetune",
        "llava-onevision-qwen2-0.5b-ov-hf", "pixtral-12b-hf", "qwen2.5-vl-3b-instruct",
    )  # fmt: skip

    REBUILT = [name for name in REAL if (ROOT / name / "merges.txt").is_file()]

    @pytest.mark.models
    @pytest.mark.parametrize(
        ("name", "without"),
        [*((name, None) for name in REAL), *((name, "tokenizer.json") for name in REBUILT)],
    )
    def test_real_models_are_what_transformers_loads(
        name: str, without: str | None, tmp_path: Path
    ) -> None:
        source = ROOT / name
        if without is not None:
            source = tmp_path / name
            shutil.copytree(ROOT / name, source, ignore=shutil.ignore_patterns(without))
        reference = transformers.AutoTokenizer.from_pretrained(source)
        ours = load_tokenizer(source)
        assert ours.vocab_size == len(reference)
        same_ids(ours, lambda text: reference(text, add_special_tokens=False)["input_ids"])
        same_ids(ours, lambda text: reference(text)["input_ids"], special=True)
        same_texts(ours, reference.decode)

    @pytest.mark.models
    def test_a_real_sentencepiece_model_has_the_ids_of_its_tokenizer_json(tmp_path: Path) -> None:
        source = ROOT / "llava-1.5-7b-hf"
        for file in ("tokenizer.model", "added_tokens.json", "special_tokens_map.json"):
            shutil.copy(source / file, tmp_path / file)
        ours = load_tokenizer(tmp_path)
        reference = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
        same_ids(ours, lambda text: reference.encode(text, add_special_tokens=False).ids)
