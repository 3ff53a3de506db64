"""`load_tokenizer`: what it finds, how it chooses, and what it refuses."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from format_helpers import MISTRAL, SPM, rank_directory, spm_directory, tekken
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabularies import write_ranks

import mmroute
from mmroute import ModelError, Normalizer, Reason, load_tokenizer
from mmroute.text.fingerprint import fingerprint


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


def test_an_entry_point_is_loaded_as_packages_declare_it(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"acme": "own_tokenizers:Reversed [fast]", "broken": "own_tokenizers"}

    def installed(group: str, name: str) -> list[importlib.metadata.EntryPoint]:
        assert group == "mmroute.tokenizers"
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
    directory = str(rank_directory(tmp_path))
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


def test_a_gguf_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0")
    for source in (path, tmp_path):
        with pytest.raises(ModelError, match="is a GGUF file") as caught:
            load_tokenizer(source)
        assert caught.value.reason is Reason.UNSUPPORTED_TOKENIZER
    with pytest.raises(ModelError, match="is a GGUF file"):
        Normalizer.from_pretrained(str(path))


def test_ids_that_are_none_are_refused(tmp_path: Path) -> None:
    ours = load_tokenizer(rank_directory(tmp_path))
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
        small_model("small-qwen2.5-vl"), rank_directory(tmp_path / "a"), SPM,
        spm_directory(tmp_path / "b", {}), MISTRAL / "tekken_240911.json",
    ]  # fmt: skip
    for source in sources:
        with pytest.raises(ValueError, match="surrogate"):
            load_tokenizer(source).encode("a\ud800b")


@settings(deadline=None)  # the first one loads it
@given(text=st.text(max_size=200))
def test_byte_level_text_comes_back(text: str) -> None:
    tokenizer = tekken()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.convert_ids_to_tokens(tokenizer.encode(text))) == len(
        tokenizer.encode(text)
    )


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
