"""Loading models: what is found where, and what is refused with which words."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from paths import ROOT
from small_models import ALL_MODELS, SMALL_MODELS, Files, write_model

from mmroute import ImageSize, ModelError, Normalizer, Reason, SpecError
from mmroute.engine import engine_names
from mmroute.errors import NoTokenIdsError
from mmroute.families.matching import known_families, match_family
from mmroute.families.spec import load_spec
from mmroute.model.resolve import resolve_model
from mmroute.model_directory import EMBEDDED_MODEL, find_model
from mmroute.tokenizers.formats import mistral
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer

_AUDIO = "takes audio only, and is compared with the engine for real directories"
WITHOUT_SMALL_MODEL: Final = {
    "glm-5.3-flash": "vLLM refuses its configuration on a CPU",
    "llava-next-video": "takes videos only, and is compared with the engine for a real directory",
    "qwen2-audio": _AUDIO,
    "qwen3-asr": _AUDIO,
    "text-mistral": "its tokenizer is a file of mistral-common: see test_text_models.py",
    "ultravox": _AUDIO,
    "voxtral": _AUDIO,
}


def test_every_family_has_a_small_model_or_says_why_not(tmp_path: Path) -> None:
    small = set()
    for name, files in ALL_MODELS.items():
        # A family is known by its configuration; vocabularies are most of what is to be written.
        config = {file: value for file, value in files().items() if file != "tokenizer.json"}
        small.add(match_family(find_model(str(write_model(config, tmp_path / name)))).family)
    assert {spec.family for spec in known_families()} - small == set(WITHOUT_SMALL_MODEL)


@pytest.mark.parametrize("name", [*SMALL_MODELS, EMBEDDED_MODEL])
def test_every_value_has_a_place(name: str, normalizer: Callable[[str], Normalizer]) -> None:
    model = normalizer(name).model
    origins = {o.name: o for o in model.origins}
    assert all(o.source for o in model.origins)
    assert {"bos", "image_token_id", "grid", "layout", "placement"} <= origins.keys()


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_limits_of_the_vocabulary_are_the_libraries_own(
    name: str, normalizer: Callable[[str], Normalizer]
) -> None:
    tokenizer = normalizer(name).model.tokenizer
    assert isinstance(tokenizer, HfTokenizer)
    vocabulary = tokenizer.backend.get_vocab(with_added_tokens=True)
    assert tokenizer.max_token_id == max(vocabulary.values())
    assert tokenizer.max_chars_per_token == max(map(len, vocabulary))


def test_a_tekken_vocabulary_is_read_as_a_whole_where_that_is_asked_for(
    normalizer: Callable[[str], Normalizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer: Any = normalizer(EMBEDDED_MODEL).model.tokenizer
    monkeypatch.setattr(mistral, "FewestTokens", None)
    another = mistral.MistralTokenizer(tokenizer.backend)
    assert (
        another.encode("[IMG] Hi", add_special_tokens=True).tolist()
        == tokenizer.encode("[IMG] Hi", add_special_tokens=True).tolist()
    )
    assert [another.token_id(each) for each in ("[IMG]", "Hi", "no token")] == [10, 37133, None]
    with pytest.raises(TypeError):
        _ = another.fewest_tokens


def test_values_are_named_with_their_places(small_model: Callable[[str], Path]) -> None:
    model = resolve_model(str(small_model("small-qwen2.5-vl")))
    places = {o.name: (o.value, o.source) for o in model.origins}
    assert len(places) == len(model.origins)  # values of each modality have names of their own
    assert places["patch_size"] == (14, "preprocessor_config.json:patch_size")
    assert "video.patch_size" in places
    assert places["max_pixels"] == (12845056, "preprocessor_config.json:max_pixels")
    assert places["chat_template"][1] == "chat_template.json:chat_template"
    image_id, source = places["image_token_id"]
    assert image_id == SMALL_MODELS["small-qwen2.5-vl"]()["config.json"]["image_token_id"]
    assert "the vocabulary" in source


def drop(name: str) -> Callable[[Files], object]:
    return lambda files: files.pop(name)


def put(name: str, content: Any) -> Callable[[Files], object]:
    return lambda files: files.__setitem__(name, content)


def edit(name: str, **fields: Any) -> Callable[[Files], object]:
    return lambda files: files[name].update(fields)


BROKEN: dict[str, tuple[str, Callable[[Files], object], Reason, str]] = {
    "no tokenizer": (
        "small-qwen2.5-vl", drop("tokenizer.json"), Reason.MISSING_FILE, "tokenizer.json",
    ),
    "no image processor": (
        "small-qwen2.5-vl", drop("preprocessor_config.json"), Reason.MISSING_FILE,
        "preprocessor_config.json",
    ),
    "no config": ("small-qwen2.5-vl", drop("config.json"), Reason.UNKNOWN_FAMILY, "config.json"),
    "config is not JSON": (
        "small-qwen2.5-vl", put("config.json", "{"), Reason.MALFORMED_FILE, "config.json",
    ),
    "config is a list": (
        "small-qwen2.5-vl", put("config.json", []), Reason.MALFORMED_FILE, "config.json",
    ),
    "tokenizer is not one": (
        "small-qwen2.5-vl", put("tokenizer.json", {"a": 1}), Reason.MALFORMED_FILE,
        "tokenizer.json",
    ),
    "template is not jinja": (
        "small-qwen2.5-vl", put("chat_template.json", {"chat_template": "{% for %}"}),
        Reason.MALFORMED_FILE, "chat_template.json",
    ),
    "another architecture": (
        "small-qwen2.5-vl", edit("config.json", architectures=["FooForBar"]),
        Reason.UNKNOWN_FAMILY, "FooForBar",
    ),
    "a processor of remote code": (
        "small-qwen2.5-vl",
        edit("config.json", architectures=["Ernie4_5_VLMoeForConditionalGeneration"]),
        Reason.UNKNOWN_FAMILY, "code in the repository of the model",
    ),
    "a similar model type": (
        "small-qwen2.5-vl", edit("config.json", model_type="qwen2_5_vl_moe"),
        Reason.UNKNOWN_FAMILY, "qwen2_5_vl_moe",
    ),
    "image token disagrees": (
        "small-glm-4.1v", edit("config.json", image_token_id=3),
        Reason.CONTRADICTORY_CONFIG, "config.json:image_token_id",
    ),
    "image token is split": (
        "small-qwen2-vl", edit("tokenizer_config.json", added_tokens_decoder={}),
        Reason.SPECIAL_TOKEN_SPLIT, "<|image_pad|>",
    ),
    "image token is an ordinary one": (
        "small-llava-1.5", edit("config.json", image_token_index=10**6),
        Reason.SPECIAL_TOKEN_SPLIT, "image_token",
    ),
    "another tokenizer class": (
        "small-qwen2.5-vl", edit("tokenizer_config.json", tokenizer_class="CodeLlamaTokenizer"),
        Reason.TOKENIZER_UNVERIFIED, "CodeLlamaTokenizer",
    ),
    "a class with another option": (
        "small-qwen2.5-vl", edit("tokenizer_config.json", split_special_tokens=True),
        Reason.TOKENIZER_UNVERIFIED, "split_special_tokens",
    ),
    "a chat template of another kind": (
        "small-qwen2.5-vl", edit("tokenizer_config.json", chat_template=[{"name": "default"}]),
        Reason.INVALID_CONFIG_FIELD, "chat_template",
    ),
    "files of two formats": (
        "small-mistral3", lambda files: files.update({"params.json": {}, "tekken.json": {}}),
        Reason.CONTRADICTORY_CONFIG, "params.json",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_models_are_refused(name: str, changed_model: Callable[..., Path]) -> None:
    base, change, reason, mentioned = BROKEN[name]
    with pytest.raises(ModelError) as caught:
        resolve_model(str(changed_model(base, change)))
    assert caught.value.reason is reason, str(caught.value)
    assert mentioned in str(caught.value)


def _small_tiles(files: Files) -> None:
    for name in ("config.json", "preprocessor_config.json"):
        files[name].update(image_grid_pinpoints=[[1, 1]])


@pytest.mark.parametrize(
    ("name", "change", "mentioned"),
    [
        (
            "small-qwen2.5-vl",
            edit("preprocessor_config.json", patch_size="14"),
            "preprocessor_config.json:patch_size",
        ),
        (
            "small-glm-4v",
            lambda files: files["config.json"]["vision_config"].pop("patch_size"),
            "config.json:vision_config.patch_size",
        ),
        (
            "small-muse-glimmer",
            edit("preprocessor_config.json", do_resize=False),
            "do_resize must be True",
        ),
        (
            "small-llava-next",
            edit("preprocessor_config.json", image_grid_pinpoints=[[336, 336]]),
            "preprocessor_config.json:image_grid_pinpoints",
        ),
        ("small-llava-next", _small_tiles, "anyres needs resolutions of at least"),
    ],
)
def test_a_model_of_broken_images_answers_without_them(
    name: str,
    change: Callable[[Files], None],
    mentioned: str,
    changed_model: Callable[..., Path],
) -> None:
    normalizer = Normalizer.from_pretrained(changed_model(name, change))
    assert normalizer.normalize(messages=[{"role": "user", "content": "What?"}]).exact
    routing = normalizer.normalize(
        messages=[{"role": "user", "content": [{"type": "image"}]}], images=[ImageSize(56, 56)]
    )
    assert routing.reason is Reason.UNSUPPORTED_MODALITY
    assert mentioned in routing.message


def test_a_mistyped_directory_is_recognised(small_model: Callable[[str], Path]) -> None:
    path = small_model("small-qwen2.5-vl")
    with pytest.raises(ModelError) as caught:
        resolve_model(f"{path}l")
    assert caught.value.reason is Reason.MODEL_NOT_FOUND
    assert f"did you mean {path}" in str(caught.value)


def test_hub_names_fail_with_words_when_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError) as caught:
        find_model("nobody/nothing")
    assert caught.value.reason is Reason.MODEL_NOT_FOUND


def test_a_hub_snapshot_is_read_with_its_commit(hub_commit: str) -> None:
    """A model in the hub's cache is found offline, without weights, and its commit is kept."""
    found = find_model("someone/small")
    assert found.commit == hub_commit
    assert found.has("tokenizer.json")


def test_unknown_backends_are_refused() -> None:
    assert engine_names() == ["sglang", "vllm", "vllm-rust"]
    with pytest.raises(ModelError) as caught:
        Normalizer.from_pretrained(EMBEDDED_MODEL, backend="vlm")
    assert caught.value.reason is Reason.UNKNOWN_BACKEND
    assert "Did you mean 'vllm'" in str(caught.value)


def test_spec_errors_name_file_and_field() -> None:
    with pytest.raises(SpecError, match=r"^bad.toml: .*image.target: .*found 3.*famly: "):
        load_spec('famly = "x"\n[image]\ntarget = 3\n', "bad.toml")


SPEC = (ROOT / "model_specs" / "qwen2_5_vl.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("engine", "version", "most"),
    [
        ("vllm", "0.33.0", 2),
        ("vllm", "0.34.0", None),
        ("vllm", "0.28.1", 1),
        ("sglang", "0.5", None),
    ],
)
def test_a_table_may_hold_for_some_versions_of_an_engine(
    engine: str, version: str, most: int | None
) -> None:
    tables = (
        '[engine."vllm<0.34".image]\nmax_items = 2\n[engine."vllm<0.30".image]\nmax_items = 1\n'
    )
    spec = load_spec(f"{SPEC}\n{tables}", "mine.toml").for_engine(engine, version)
    assert spec.image is not None
    assert spec.image.max_items == most


@pytest.mark.parametrize("key", ["vllm<", "0.34", "vllm is new"])
def test_a_table_of_no_versions_is_refused(key: str) -> None:
    with pytest.raises(SpecError, match="must be an engine, or one with versions"):
        load_spec(f'{SPEC}\n[engine."{key}".image]\nmax_items = 2\n', "mine.toml")


def test_errors_survive_a_process_boundary() -> None:
    errors = (
        ModelError(Reason.MISSING_FILE, "gone"), SpecError("bad"),
        NoTokenIdsError(Reason.EMPTY_PROMPT, "none"),
    )  # fmt: skip
    for error in errors:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_no_two_families_match_one_model() -> None:
    keys = [frozenset(spec.match.items()) for spec in known_families()]
    assert len(set(keys)) == len(keys)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mistral_common", "mistral_common.tokens.tokenizers.mistral"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModelError, match=r"pip install '\.\[mistral\]'") as missing:
        find_model(EMBEDDED_MODEL)
    assert missing.value.reason == Reason.UNSUPPORTED_TOKENIZER


def test_every_reason_is_documented() -> None:
    documented = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    assert all(f"| `{reason}` |" in documented for reason in Reason)
