"""Rank files give the IDs of tiktoken and of the classes of models that have them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import tiktoken
from format_helpers import rank_directory, same_ids
from small_vocabularies import byte_pairs, write_ranks
from tiktoken.load import load_tiktoken_bpe

from mmroute import ModelError, Reason, load_tokenizer
from mmroute.text.formats import tiktoken_ranks

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def test_a_rank_file_is_what_tiktoken_reads(tmp_path: Path) -> None:
    first = len(byte_pairs()[0])
    added = {
        str(first + 10): {"content": "<|endoftext|>", "special": True},
        str(first + 12): {"content": "<tool>", "special": False},
    }
    config = {"added_tokens_decoder": added, "eos_token": "<|endoftext|>", "add_eos_token": True}
    directory = rank_directory(tmp_path, config)
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
    with pytest.raises(ModelError, match=r"'\[T\]' begins with '\[T'"):
        load_tokenizer(rank_directory(tmp_path, {"added_tokens_decoder": added}))


def test_a_text_on_which_tiktoken_gives_up_is_named(tmp_path: Path) -> None:
    ours = load_tokenizer(rank_directory(tmp_path))
    with pytest.raises(ValueError, match="cannot cut this text of 1500001 characters"):
        ours.encode(" " * 1_500_000 + "a")


def test_offsets_of_bytes_of_one_character_are_that_character(tmp_path: Path) -> None:
    ours = load_tokenizer(rank_directory(tmp_path))
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
