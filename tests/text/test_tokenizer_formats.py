"""Every format gives the IDs and texts of its reference, on texts on which tokenizers differ."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import transformers
from format_helpers import MISTRAL, SPM, same_ids, same_texts, spm_directory, tekken
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from small_models import Files
from small_vocabularies import SPECIALS, byte_level, write_ranks, write_vocab_and_merges

from mmroute import ModelError, Normalizer, Reason, load_tokenizer
from mmroute.model_directory import EMBEDDED_MODEL, find_model
from mmroute.tokenizers.formats.mistral import load_chat_tokenizer

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
    backend = byte_level()
    backend.normalizer = tokenizers.normalizers.Replace("e", "!")
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
        {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": True},
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
    # What else there is, is put around.
    every = 1 if config == {"tokenizer_class": "Qwen2Tokenizer"} else 10
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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": 0, "b": 0}', "the ID 0 to 'a' and to 'b'"),
        ('{"a": 0, "a": 1}', "a token twice"),
        ('{"a": []}', "do not make a BPE"),
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
    ours = load_tokenizer(spm_directory(tmp_path, config | {"legacy": legacy}))
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
    ours = load_tokenizer(spm_directory(tmp_path, {}))

    def without(ids: list[int]) -> str:
        text: str = reference.decode([i for i in ids if i > 2])
        return text

    same_texts(ours, without, skip_special_tokens=True)
    ids = ours.encode("Hello<s> world</s>", add_special_tokens=True)
    assert ours.decode(ids) == "<s> Hello<s>  world</s>"


def test_a_token_with_the_id_of_a_piece_is_noted(tmp_path: Path) -> None:
    piece = sentencepiece.SentencePieceProcessor(model_file=str(SPM)).id_to_piece(22557)
    config = {"added_tokens_decoder": {"22557": {"content": "<image>", "special": True}}}
    ours = load_tokenizer(spm_directory(tmp_path, config))
    assert f"'<image>' of {piece!r}" in ours.notes[1]
    assert ours.encode("Hello<image>").tolist() == [22557, 22557]


def test_a_piece_cannot_get_another_id(tmp_path: Path) -> None:
    config = {"added_tokens_decoder": {"32000": {"content": "</s>", "special": True}}}
    with pytest.raises(ModelError, match="the ID 32000, and the model 2") as caught:
        load_tokenizer(spm_directory(tmp_path, config))
    assert caught.value.reason is Reason.SPECIAL_TOKEN_SPLIT


def test_what_a_configuration_puts_around_a_sequence(tmp_path: Path) -> None:
    config = {"add_bos_token": False, "add_eos_token": True}
    ours = load_tokenizer(spm_directory(tmp_path, config))
    assert ours.encode("", add_special_tokens=True).tolist() == [2]


@pytest.mark.parametrize("name", ["small-llava-1.5", "small-qwen2.5-vl", "small-gemma-3"])
def test_a_tokenizer_json_alone_decides_what_is_put_around_a_sequence(
    name: str, changed_model: Callable[..., Path]
) -> None:
    """transformers reads neither field beside a tokenizer.json, and so does vLLM 0.33.0."""

    def change(files: Files) -> None:
        written = files["tokenizer_config.json"]
        written |= {"add_bos_token": not written.get("add_bos_token"), "add_eos_token": True}

    directory = changed_model(name, change)
    reference = transformers.AutoTokenizer.from_pretrained(directory)
    ours = load_tokenizer(directory)
    assert ours.notes == ()  # these are the engine's
    same_ids(ours, reference.encode, special=True)


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
    every = 1 if path == SPM else 10  # the others have other vocabularies, and no other code
    same_ids(ours, lambda text: reference.encode(text, bos=False, eos=False), every=every)
    same_ids(ours, lambda text: reference.encode(text, bos=True, eos=False), special=True)
    same_texts(ours, reference.decode, skip_special_tokens=True)


def test_tekken_is_what_mistral_common_reads() -> None:
    path = MISTRAL / "tekken_240911.json"
    reference: Any = MistralTokenizer.from_file(str(path)).instruct_tokenizer.tokenizer
    ours = tekken()
    assert ours.format == "tekken"
    same_ids(ours, lambda text: reference.encode(text, bos=False, eos=False))
    same_texts(ours, reference.decode, skip_special_tokens=True)
    assert ours.decode(ours.encode("[INST] é", add_special_tokens=True)) == "<s>[INST] é"
    assert ours.token_id("[INST]") == 3


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


def test_a_tekken_vocabulary_is_spelled_where_it_is_asked_for() -> None:
    path = find_model(EMBEDDED_MODEL).path("tekken.json")
    ours: Any = load_chat_tokenizer(path).instruct_tokenizer.tokenizer
    plain = MistralTokenizer.from_file(str(path)).instruct_tokenizer.tokenizer
    assert type(plain) is Tekkenizer  # whoever else loads one gets mistral-common's own class
    assert not any(ours._vocab)
    assert ours.vocab() == plain.vocab()
