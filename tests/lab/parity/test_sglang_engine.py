"""SGLang, as `mmroute prove` starts and asks it, and `mmroute validate` judges its events."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from paths import VECTORS

from mmroute.engines.sglang.options import parse_command
from mmroute.engines.sglang.settings import SglangSettings
from mmroute.lab.engines import PROVERS
from mmroute.lab.engines.sglang.asking import generation, served
from mmroute.lab.engines.sglang.changes import changes
from mmroute.lab.engines.sglang.start import engine_command, has_state, machine_options
from mmroute.lab.parity.cases import Case, Outcome
from mmroute.lab.parity.comparison import Finding, Verdict
from mmroute.model.resolve import resolve_model
from mmroute.model_directory import find_model

RECORDING = VECTORS / "recordings" / "sglang.jsonl"
RECORDED = [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]
SETTINGS = {line["setting"]: line for line in RECORDED}
LINE = (
    "sglang serve --model-path org/model --tp 2 --page-size 32 --context-length 4096 "
    "--enable-multimodal --lora-paths a=b c=d --image-processor-backend pil"
)
CHAT = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]
IMAGES = [{"width": 2, "height": 1}]

Json = dict[str, Any]


def command_of(line: str, *, state: bool = False, model: str = "org/model") -> Any:
    return engine_command(parse_command(line, None), model, Path("/copy"), has_state=state)


def test_it_is_found_by_its_name() -> None:
    assert PROVERS.find("sglang").LABEL == "SGLang"


def test_what_decides_answers_is_kept_and_the_machine_is_put_aside() -> None:
    found = command_of(LINE)
    assert found.put_aside == ("--tp-size", "2", "--lora-paths", "a=b", "c=d")
    settings = SglangSettings.from_args(found.line)
    assert isinstance(settings, SglangSettings)
    assert (settings.model, settings.page_size, settings.context_length) == ("org/model", 32, 4096)
    assert (settings.enable_multimodal, settings.image_processor_backend) == (True, "pil")


def test_the_line_with_the_options_of_the_machine_is_one_that_sglang_takes() -> None:
    given = """sglang serve --kv-events-config '{"format": "dynamo", "endpoint": "tcp://*:1"}'"""
    command = command_of(given)
    options = {**command.options, **machine_options(7, "ipc:///e", command.options)}
    events = json.loads(options["kv-events-config"])
    assert (events["format"], events["endpoint"]) == ("dynamo", "ipc:///e")
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    line = shlex.join(word for word in words if word != "True")
    assert parse_command(f"sglang serve {line}", None).options["page_size"] == 16


@pytest.mark.parametrize(("given", "notes"), [("", 0), ("--page-size 64", 1)])
def test_layers_with_a_state_take_pages_of_a_token(given: str, notes: int) -> None:
    found = command_of(f"sglang serve {given}", state=True)
    assert found.options["page-size"] == 1
    assert found.options["mamba-radix-cache-strategy"] == "no_buffer"
    assert len(found.changed) == notes


def test_a_family_with_a_state_is_known_by_its_spec(tmp_path: Path) -> None:
    """A directory that no family fits is refused later, by name."""
    for config, state in (
        ({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"}, True),
        ({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}, False),
        ({"architectures": ["None"]}, False),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        assert has_state(find_model(str(tmp_path))) is state


@pytest.mark.parametrize(
    ("request_", "path", "fields"),
    [
        ({"messages": CHAT, "images": IMAGES, "add_generation_prompt": False}, "chat/completions",
         {"messages", "max_tokens", "model", "return_token_ids"}),
        ({"messages": CHAT, "images": IMAGES, "tools": [{}], "cache_salt": "s"},
         "chat/completions",
         {"messages", "max_tokens", "model", "return_token_ids", "tools", "cache_salt"}),
        ({"prompt": "What?", "lora": {"lora_name": "a", "lora_path": "b"}}, "completions",
         {"prompt", "max_tokens", "model", "return_token_ids", "lora_path"}),
        ({"prompt_token_ids": [1, 2]}, "completions",
         {"prompt", "max_tokens", "model", "return_token_ids"}),
        ({"prompt": "<image>", "images": IMAGES, "mm_hashes": ["1"]}, "generate",
         {"text", "sampling_params", "image_data", "mm_hashes"}),
        ({"prompt_token_ids": [5], "images": IMAGES}, "generate",
         {"input_ids", "sampling_params", "image_data"}),
    ],
)  # fmt: skip
def test_a_request_is_asked_by_the_fields_of_its_route(
    request_: Json, path: str, fields: set[str]
) -> None:
    route, body = generation(request_, "m")
    assert route.removeprefix("/v1").strip("/") == path
    assert body.keys() == fields
    if request_.get("images") and "messages" in body:
        assert body["messages"][0]["content"][0]["image_url"]["url"].startswith("data:image/png")


def test_what_answers_tell_of_a_prompt() -> None:
    usage = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    found = served({"choices": [{"prompt_token_ids": [1, 2, 3]}], "usage": usage})
    assert found.token_ids is not None
    assert (found.token_ids.tolist(), found.num_tokens, found.cached_tokens) == ([1, 2, 3], 3, 2)
    told = served({"text": "", "meta_info": {"prompt_tokens": 3, "cached_tokens": 0}})
    assert (told.token_ids, told.num_tokens, told.cached_tokens) == (None, 3, 0)


@pytest.fixture
def validated(
    tmp_path: Path, small_model: Callable[[str], Path]
) -> Callable[[str, str], tuple[int, Json]]:
    """The status and the report for the recording of a setting, under a router's line."""

    def validate(setting: str, told: str) -> tuple[int, Json]:
        path = tmp_path / "recording.jsonl"
        lines = [json.dumps(line) for line in RECORDED if line["setting"] == setting]
        path.write_text("\n".join(lines), encoding="utf-8")
        model = str(small_model(SETTINGS[setting]["model"]))
        result = run(
            "validate", model, "--backend", "sglang", "--events", str(path), "--json",
            "--engine-args", told,
        )  # fmt: skip
        return result.status, json.loads(result.stdout)

    return validate


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_running_engine_announces_what_is_predicted(
    setting: str, validated: Callable[[str, str], tuple[int, Json]]
) -> None:
    line = SETTINGS[setting]["arguments"]
    told = line if "--page-size" in line else f"{line} --page-size 16"
    status, report = validated(setting, told)
    assert status == 0, report["findings"]
    assert report["verdicts"]["equal"] >= 5


@pytest.mark.parametrize(
    ("setting", "told", "proposed"),
    [
        ("defaults", "", "--page-size 16"),
        ("page size", "--page-size 16", "--page-size 32"),
        ("processor", "--page-size 16", "--image-processor-backend pil"),
        ("old processor", "--page-size 16", "--disable-fast-image-processor"),
        ("arguments of processors", "--page-size 16", "--mm-process-config '{\"image\": {}}'"),
        ("defaults", "--page-size 64 --disable-fast-image-processor",
         "--page-size 16, take --disable-fast-image-processor out of the line; with these 7 of 7"),
        ("dynamo", "--page-size 16", "--kv-events-config '{\"format\": \"dynamo\"}'"),
        ("features", "--page-size 16 --mm-preprocess-cache-size-mb 64",
         "take --mm-preprocess-cache-size-mb out of the line"),
        ("defaults", "--page-size 16 --revision main --context-length 40",
         "--context-length"),
    ],
)  # fmt: skip
def test_what_a_router_is_told_wrongly_is_named(
    setting: str, told: str, proposed: str, validated: Callable[[str, str], tuple[int, Json]]
) -> None:
    status, report = validated(setting, f"sglang serve {told}")
    assert status == 1
    assert proposed in report["proposal"]
    assert "would be equal" in report["proposal"]


@pytest.mark.parametrize(
    ("refusal", "proposed"),
    [
        ("Image count 3 exceeds limit 2 per request.",
         "--limit-mm-data-per-request '{\"image\": 2}'"),
        ("The input (5000 tokens) is longer than the model's context length (4096 tokens).",
         "--context-length 4096"),
    ],
)  # fmt: skip
def test_limits_are_those_that_the_engine_names(
    refusal: str, proposed: str, small_model: Callable[[str], Path]
) -> None:
    path = str(small_model("small-qwen3-vl"))
    model = resolve_model(path, backend="sglang", engine_settings=SglangSettings(page_size=16))
    case = Case("a", "own", {"prompt": "What?"})
    found = Finding(case, Outcome(), Outcome(refusal=refusal), Verdict.SILENT)
    assert proposed in map(str, changes(model, [found], None))
