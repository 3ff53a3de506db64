"""Models that take text only: which spec they have, their templates, lengths and hashes."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import mistral_common
import pytest
import transformers
from openai_harmony import HarmonyError
from small_vocabularies import SPECIALS, byte_level

from mmroute import Normalizer
from mmroute.engines.vllm import harmony
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import InexactError, ModelError, Reason
from mmroute.families.matching import known_families
from mmroute.health.self_check import check_model
from mmroute.model.resolve import resolve_model

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
NAMED = [
    {"name": "default", "template": "plain " + TEMPLATE},
    {"name": "tool_use", "template": "tools " + TEMPLATE},
    {"name": "rag", "template": "rag " + TEMPLATE},
]
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello the world"}]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
DATA = Path(mistral_common.__file__).parent / "data"


@functools.cache
def tokenizer_json() -> str:
    backend = byte_level()
    backend.add_special_tokens(list(SPECIALS))
    text: str = backend.to_str()
    return text


def write(root: Path, *, template: Any = TEMPLATE, **config: Any) -> Path:
    """A directory of a small byte-level model; a Llama, unless `config` says otherwise."""
    root.mkdir(exist_ok=True)
    (root / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    given = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 512,
    }
    files = {
        "config.json": {k: v for k, v in {**given, **config}.items() if v is not None},
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "chat_template": template},
    }
    for name, content in files.items():
        (root / name).write_text(json.dumps(content), encoding="utf-8")
    return root


def text_of(normalizer: Normalizer, **request: Any) -> str:
    routing = normalizer.normalize(messages=HELLO, **request)
    return normalizer.model.tokenizer.decode(routing.token_ids.tolist())


def test_a_text_model_has_the_ids_of_transformers(tmp_path: Path) -> None:
    normalizer = Normalizer.from_pretrained(write(tmp_path))
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert normalizer.model.family.family == "text"
    (built,) = [o.value for o in normalizer.model.origins if o.name == "tokenizer"]
    assert built == "built as GPT2Tokenizer"
    for text in ("Hello the world", "<|im_start|> 12 \u00e9\n\n"):
        routing = normalizer.normalize(prompt=text, add_special_tokens=True)
        assert routing.token_ids.tolist() == reference.encode(text)
    image = {"role": "user", "content": [{"type": "image"}]}
    assert normalizer.normalize(messages=[image]).reason == Reason.UNSUPPORTED_MODALITY


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"architectures": ["HCXVisionV2ForCausalLM"]}, Reason.UNKNOWN_FAMILY),
        ({"architectures": ["LlamaForCausalLMs"]}, Reason.UNKNOWN_FAMILY),
        ({"vision_config": {"patch_size": 14}}, Reason.CONTRADICTORY_CONFIG),
        ({"max_position_embeddings": None, "model_type": "new"}, Reason.MISSING_CONFIG_FIELD),
    ],
)
def test_what_is_no_text_model_is_refused(
    config: dict[str, Any], reason: Reason, tmp_path: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model(str(write(tmp_path, **config)))
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({}, 512),
        ({"max_position_embeddings": None}, 2048),  # LlamaConfig's
        ({"max_sequence_length": 100}, 100),
        ({"max_seq_len": 100}, 100),
        ({"n_positions": 222}, 222),
        ({"model_max_length": 4096}, 4096),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 2048),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 512),
        (
            {
                "rope_scaling": {"type": "longrope", "long_factor": [1.0]},
                "original_max_position_embeddings": 64,
            },
            64,
        ),
        (
            {"rope_parameters": {"full": {"rope_type": "linear", "factor": 2.0}}},
            1024,
        ),
        (
            {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            512,
        ),
    ],
)
def test_the_longest_context(config: dict[str, Any], length: int, tmp_path: Path) -> None:
    assert resolve_model(str(write(tmp_path, **config))).max_model_len == length


def test_of_named_templates_one_is_for_tools(tmp_path: Path) -> None:
    normalizer = Normalizer.from_pretrained(write(tmp_path, template=NAMED))
    assert text_of(normalizer).startswith("plain ")
    assert text_of(normalizer, tools=TOOLS).startswith("tools ")


def test_fields_of_chats_reach_the_template_as_in_the_engine(tmp_path: Path) -> None:
    template = (
        "{{ reasoning_effort }}|{{ enable_thinking }}|{% for d in documents or [] %}"
        "{{ d.text }}{% endfor %}|{{ messages[0].content }}"
    )
    directory = str(write(tmp_path, template=template))
    plain = Normalizer.from_pretrained(directory)
    settings = VllmSettings(chat_template_kwargs={"enable_thinking": True})
    set_up = Normalizer.from_pretrained(directory, engine_settings=settings)

    def text(normalizer: Normalizer = plain, **request: Any) -> str:
        return text_of(normalizer, **request).removesuffix("|Hello the world")

    assert text() == "||"
    assert text(reasoning_effort="low", documents=[{"text": "a"}]) == "low|True|a"
    assert text(reasoning_effort="none") == "none|False|"
    kwargs = {"reasoning_effort": "high", "enable_thinking": None, "documents": [{"text": "b"}]}
    assert text(reasoning_effort="low", chat_template_kwargs=kwargs) == "low||b"
    assert text(set_up) == "|True|"
    assert text(set_up, reasoning_effort="none") == "none|False|"
    assert text(set_up, reasoning_effort="none", chat_template_kwargs=kwargs) == "none|True|b"
    for wrong in ({"reasoning_effort": "huge"}, {"documents": [{"n": 1}]}):
        assert plain.normalize(messages=HELLO, **wrong).reason == Reason.INVALID_REQUEST


def test_template_files_hide_those_of_the_configuration(tmp_path: Path) -> None:
    directory = write(tmp_path, template=NAMED)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("file " + TEMPLATE)
    normalizer = Normalizer.from_pretrained(directory)
    assert text_of(normalizer, tools=TOOLS).startswith("file ")
    assert normalizer.normalize(messages=HELLO).reason == Reason.CHAT_TEMPLATE_MISSING


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("../other/tokenizer.json", "holds the text of a link, '../other/tokenizer.json'"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    ],
)
@pytest.mark.parametrize("file", ["tokenizer.json", "tekken.json", "chat_template.jinja"])
def test_a_file_that_says_where_the_file_is_is_no_file(
    file: str, text: str, words: str, tmp_path: Path
) -> None:
    directory = write(tmp_path)
    if file == "tekken.json":
        (tmp_path / "config.json").unlink()
        (tmp_path / "params.json").write_text('{"dim": 8, "vocab_size": 9}')
    (tmp_path / file).write_text(text)
    with pytest.raises(ModelError, match=words) as caught:
        resolve_model(str(directory))
    assert caught.value.reason is Reason.MALFORMED_FILE
    assert str(tmp_path / file) in str(caught.value)


def test_a_file_that_holds_the_text_of_a_link_is_the_file_behind_it(tmp_path: Path) -> None:
    (there := tmp_path / "there").mkdir()
    (here := tmp_path / "here").mkdir()
    write(there), write(here)
    (here / "tokenizer.json").write_text("../there/tokenizer.json")
    found = Normalizer.from_pretrained(here).normalize(messages=HELLO)
    assert (
        found.token_ids.tolist()
        == Normalizer.from_pretrained(there).normalize(messages=HELLO).token_ids.tolist()
    )
    (here / "tokenizer.json").write_text("../there/config.json")  # of another name
    with pytest.raises(ModelError, match="holds the text of a link"):
        Normalizer.from_pretrained(here)


def test_the_template_of_a_processor_is_not_looked_at(tmp_path: Path) -> None:
    directory = write(tmp_path, template=None)
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    normalizer = Normalizer.from_pretrained(directory)
    assert normalizer.normalize(messages=HELLO).reason == Reason.CHAT_TEMPLATE_MISSING


def test_chats_that_the_engine_renders_by_code_are_refused_by_name(tmp_path: Path) -> None:
    deepseek = {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32"}
    older = Normalizer.from_pretrained(write(tmp_path, **deepseek), backend="vllm==0.30.0")
    inkling = {"architectures": ["InklingForCausalLM"], "model_type": "inkling_text"}
    without_marks = Normalizer.from_pretrained(write(tmp_path, **inkling))
    for normalizer, told in ((older, "text-deepseek-v3.2"), (without_marks, "<|message_user|>")):
        routing = normalizer.normalize(messages=HELLO)
        assert routing.reason == Reason.CHAT_RENDERER_UNSUPPORTED
        assert told in routing.message
        assert normalizer.normalize(prompt="Hello").exact


def test_the_tokenizer_mode_that_is_the_default_may_be_named(tmp_path: Path) -> None:
    directory = write(tmp_path, architectures=["DeepseekV32ForCausalLM"], model_type="deepseek_v32")

    def started_with(mode: str) -> Normalizer:
        settings = VllmSettings.from_args(f"vllm serve m --tokenizer-mode {mode}")
        return Normalizer.from_pretrained(directory, engine_settings=settings)

    own = Normalizer.from_pretrained(directory).normalize(messages=HELLO).token_ids.tolist()
    assert started_with("deepseek_v32").normalize(messages=HELLO).token_ids.tolist() == own
    for other in ("hf", "deepseek_v4", "mistral"):
        with pytest.raises(ModelError, match="another tokenizer or chat renderer"):
            started_with(other)


def test_the_rust_frontend_takes_any_renderer_for_any_model(tmp_path: Path) -> None:
    directory = str(write(tmp_path))

    def started_with(mode: str, backend: str = "vllm") -> Normalizer:
        arguments = f"VLLM_USE_RUST_FRONTEND=1 vllm serve m --tokenizer-mode {mode}"
        settings = VllmSettings.from_args(arguments)
        return Normalizer.from_pretrained(directory, engine_settings=settings, backend=backend)

    def prompt(normalizer: Normalizer) -> str:
        ids = normalizer.normalize(messages=[{"role": "user", "content": "Hi"}]).token_ids
        return normalizer.model.tokenizer.decode(ids.tolist())

    rendered = prompt(started_with("deepseek_v4"))
    assert rendered.endswith("<\uff5cUser\uff5c>Hi<\uff5cAssistant\uff5c><think>")
    assert prompt(started_with("hf")) == prompt(started_with("auto")) != rendered
    assert "<|open|>" in prompt(started_with("kimi_k3"))
    routing = started_with("deepseek_v4", "vllm==0.32.0").normalize(messages=HELLO)
    assert routing.reason == Reason.CHAT_RENDERER_UNSUPPORTED
    with pytest.raises(ModelError, match="does not start with it"):
        started_with("mistral")


def test_without_its_vocabulary_harmony_renders_no_chats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: object) -> None:
        raise HarmonyError("no vocab file")

    monkeypatch.setattr(harmony, "load_harmony_encoding", missing)
    monkeypatch.setattr(harmony, "encoding", harmony.encoding.__wrapped__)
    directory = str(write(tmp_path, architectures=["GptOssForCausalLM"], model_type="gpt_oss"))
    settings = VllmSettings.from_args("VLLM_SYSTEM_START_DATE=2026-01-02")
    normalizer = Normalizer.from_pretrained(directory, engine_settings=settings)
    refused = normalizer.normalize(messages=HELLO)
    assert refused.reason == Reason.CHAT_RENDERER_UNSUPPORTED
    assert "(no vocab file)" in refused.message
    assert normalizer.normalize(prompt="Hello").exact


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [("NemotronHForCausalLM", "nemotron_h"), ("DeepseekV4ForCausalLM", "deepseek_v4")],
)
def test_the_block_size_of_a_hybrid_model_comes_from_the_worker(
    architecture: str, model_type: str, tmp_path: Path
) -> None:
    directory = write(tmp_path, architectures=[architecture], model_type=model_type)
    routing = Normalizer.from_pretrained(directory).normalize(prompt="Hello the world " * 40)
    for asked in (routing.block_hashes, routing.extra_keys):
        with pytest.raises(
            InexactError, match="chooses the number of tokens under one hash"
        ) as caught:
            asked()
        assert caught.value.reason is Reason.BLOCK_SIZE_UNKNOWN
    assert len(routing.block_hashes(block_size=32)) == len(routing.token_ids) // 32


def test_remote_code_of_a_tokenizer_is_refused(tmp_path: Path) -> None:
    directory = write(tmp_path, model_type="phi3", architectures=["Phi3ForCausalLM"])
    config = {"tokenizer_class": "GPT2Tokenizer", "auto_map": {"AutoTokenizer": ["a.B", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError) as caught:
        resolve_model(str(directory))
    assert caught.value.reason is Reason.TOKENIZER_UNVERIFIED


@pytest.mark.parametrize(
    ("vocabulary", "name"),
    [
        ("tekken_240911.json", "tekken.json"),
        ("mistral_instruct_tokenizer_240323.model.v3", "tokenizer.model.v3"),
    ],
)
def test_mistral_format_without_images(vocabulary: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to(DATA / vocabulary)
    (tmp_path / "params.json").write_text(json.dumps({"dim": 64, "max_seq_len": 256}))
    normalizer = Normalizer.from_pretrained(tmp_path)
    model = normalizer.model
    assert (model.family.family, model.max_model_len) == ("text-mistral", 256)
    chat = normalizer.normalize(messages=HELLO)
    encoder = model.tokenizer.chat_encoder
    assert encoder is not None
    right = encoder.encode(HELLO, tools=None, continue_final_message=False)
    assert chat.token_ids.tolist() == right.tolist()
    refused = normalizer.normalize(messages=HELLO, chat_template_kwargs={"a": 1})
    assert refused.reason == Reason.INVALID_REQUEST
    assert check_model(model).fingerprints.keys() == {"params.json", name}
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError) as caught:
        resolve_model(str(tmp_path))
    assert caught.value.reason is Reason.CONTRADICTORY_CONFIG


def test_no_two_specs_match_one_architecture() -> None:
    texts = [spec for spec in known_families() if spec.family.startswith("text")]
    listed = [name for spec in texts for names in spec.match.values() for name in names]
    assert len(listed) == len(set(listed))
