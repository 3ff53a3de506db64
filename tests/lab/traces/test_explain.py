"""Planted causes of a miss, each named by `explain`; and none where nothing keeps two apart."""

from __future__ import annotations

import base64
import copy
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from PIL import Image
from small_models import SMALL_MODELS, write_model

from mmroute import ImageSize, Normalizer, VideoSize
from mmroute.cli import main
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.lab.traces.changes import Cause, changes
from mmroute.lab.traces.explain import Explanation, explain
from mmroute.model_directory import EMBEDDED_MODEL
from mmroute.requests.request import Lora, Request

LONG = "Answer shortly, and name the page on which you found the answer. " * 3


def picture(quality: int, colour: int = 90) -> str:
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:, :32] = colour
    pixels[10:20] += 60
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": LONG, "parameters": {}}}


MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": f"It is 10:41 now. You read café menus. {LONG}"},
    {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": picture(95)}},
            {"type": "text", "text": f"What is on it? {LONG}"},
        ],
    },
    {"role": "assistant", "content": f"A bridge. {LONG}"},
    {"role": "user", "content": f"Who built it? {LONG}"},
]
FIRST = Request(messages=MESSAGES, tools=[tool("search"), tool("open")])


def edited(change: Callable[[list[dict[str, Any]]], object]) -> Request:
    messages = copy.deepcopy(MESSAGES)
    change(messages)
    return FIRST._replace(messages=messages)


def with_system(old: str, new: str) -> Request:
    return edited(lambda m: m[0].update(content=m[0]["content"].replace(old, new)))


def with_picture(**part: Any) -> Request:
    return edited(lambda m: m[1]["content"][0].update(part))


PLANTED = {
    "a clock": (with_system("10:41", "10:42"), Cause.SYSTEM_PROMPT),
    "white space": (with_system("now. You", "now.  You"), Cause.WHITE_SPACE),
    "Unicode form": (with_system("café", "\uff43afé"), Cause.UNICODE_FORM),
    "order of tools": (
        FIRST._replace(tools=[tool("open"), tool("search")]),
        Cause.TOOLS_ORDER,
    ),
    "another tool": (FIRST._replace(tools=[tool("search"), tool("close")]), Cause.TOOLS),
    "another image": (
        with_picture(image_url={"url": picture(95, colour=190)}),
        Cause.ITEM_REPLACED,
    ),
    "encoded again": (with_picture(image_url={"url": picture(60)}), Cause.ITEM_ENCODED_AGAIN),
    "a uuid": (with_picture(uuid="page-1"), Cause.ITEM_UUID),
    "LoRA": (FIRST._replace(lora=Lora("sql", "/adapters/sql")), Cause.LORA),
    "salt": (FIRST._replace(cache_salt="tenant-2"), Cause.CACHE_SALT),
    "processor": (
        FIRST._replace(mm_processor_kwargs={"min_pixels": 50176}),
        Cause.PROCESSOR_KWARGS,
    ),
    "inserted": (
        edited(lambda m: m.insert(1, {"role": "user", "content": "By the way: hello."})),
        Cause.MESSAGE_INSERTED,
    ),
    "dropped": (edited(lambda m: m.pop(2)), Cause.MESSAGE_DROPPED),
    "edited": (
        edited(lambda m: m[2].update(content=m[2]["content"].replace("bridge", "tower"))),
        Cause.MESSAGE_EDITED,
    ),
    "two at once": (
        FIRST._replace(cache_salt="tenant-2", lora=Lora("sql", "/adapters/sql")),
        Cause.SEVERAL,
    ),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose template puts tools first."""
    files = SMALL_MODELS["small-qwen2.5-vl"]()
    tools = "{%- for tool in tools or [] -%}{{ tool | tojson }}{%- endfor -%}"
    template = files["chat_template.json"]["chat_template"]
    files["tokenizer_config.json"]["chat_template"] = tools + template
    return write_model(files, tmp_path_factory.mktemp("explain") / "model")


@pytest.fixture(scope="module")
def qwen(directory: Path) -> Normalizer:
    return Normalizer.from_pretrained(directory, model_id="org/qwen")


def explained(model: Normalizer, first: Request, second: Request, **more: Any) -> Explanation:
    return explain(first, second, model.answer, model.model.tokenizer, **more)


@pytest.mark.parametrize(("second", "cause"), PLANTED.values(), ids=PLANTED)
def test_a_planted_cause_is_named(qwen: Normalizer, second: Request, cause: Cause) -> None:
    found = explained(qwen, FIRST, second)
    assert found.cause is cause
    assert found.block == found.shared_blocks
    assert found.lost_blocks > 0
    assert found.text


def test_an_adapter_is_shown_as_request_lines_have_it(qwen: Normalizer) -> None:
    found = explained(qwen, FIRST, FIRST._replace(lora=Lora("sql", "/adapters/sql")))
    assert found.was == "None"
    assert found.now == "{'lora_name': 'sql', 'lora_path': '/adapters/sql'}"


@pytest.mark.parametrize(
    ("engine_args", "was", "now"),
    [
        ("vllm serve other", "model string other", "model string org/qwen"),
        ("vllm serve org/qwen --block-size 32", "block size 32", "block size 16"),
        (
            "PYTHONHASHSEED=0 vllm serve org/qwen",
            "PYTHONHASHSEED 0",
            "PYTHONHASHSEED not set",
        ),
        (
            "PYTHONHASHSEED=7 vllm serve org/qwen --prefix-caching-hash-algo xxhash",
            "hash algorithm xxhash, PYTHONHASHSEED 7",
            "hash algorithm sha256, PYTHONHASHSEED not set",
        ),
    ],
)
def test_an_engine_setting_is_named(
    qwen: Normalizer, directory: Path, engine_args: str, was: str, now: str
) -> None:
    settings = VllmSettings.from_args(engine_args)
    other = Normalizer.from_pretrained(directory, engine_settings=settings)
    found = explained(qwen, FIRST, FIRST, first_answer_of=other.answer)
    assert found.cause is Cause.ENGINE_SETTING
    assert (found.was, found.now) == (was, now)
    assert found.token is None  # the IDs are the same
    assert found.shared_blocks + found.lost_blocks == found.second.num_blocks


def test_an_engine_with_other_token_ids_is_told_from_one_with_other_hashes(
    qwen: Normalizer, directory: Path
) -> None:
    settings = VllmSettings(model="org/qwen", chat_template="{{ messages[0]['content'] }}")
    other = Normalizer.from_pretrained(directory, engine_settings=settings)
    question = Request(messages=[{"role": "user", "content": "What is in this picture? " * 20}])
    found = explained(qwen, question, question, first_answer_of=other.answer)
    assert found.cause is Cause.ENGINE_SETTING
    assert "--chat-template" in found.text
    settings = VllmSettings(model="org/qwen", block_size=32)
    other = Normalizer.from_pretrained(directory, engine_settings=settings)
    assert "--chat-template" not in explained(
        qwen, question, question, first_answer_of=other.answer
    ).text  # fmt: skip


def test_nothing_keeps_equal_requests_and_later_turns_apart(qwen: Normalizer) -> None:
    whole = FIRST._replace(tools=None)
    earlier = whole._replace(messages=MESSAGES[:2])
    decomposed = with_system("é", "e\u0301")  # which this tokenizer's normalizer composes
    for first, second in ((FIRST, FIRST), (earlier, whole), (FIRST, decomposed)):
        found = explained(qwen, first, second)
        assert (found.cause, found.block, found.lost_blocks) == (None, None, 0)
        assert found.shared_blocks == min(found.first.num_blocks, found.second.num_blocks)


def test_a_generation_prompt_that_is_not_written_later(directory: Path, tmp_path: Path) -> None:
    template = json.loads((directory / "tokenizer_config.json").read_text())
    end = template["chat_template"].rindex("{%")  # of the generation prompt
    chat = template["chat_template"]
    template["chat_template"] = f"{chat[:end]}<think>{LONG}</think>{chat[end:]}"
    thinking = tmp_path / "thinking"
    shutil.copytree(directory, thinking)
    (thinking / "tokenizer_config.json").write_text(json.dumps(template))
    model = Normalizer.from_pretrained(thinking, model_id="org/qwen")
    earlier = FIRST._replace(messages=MESSAGES[:2])
    assert explained(model, earlier, FIRST).cause is Cause.GENERATION_PROMPT


def test_requests_without_a_block_are_not_called_equal(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = tmp_path / "line.jsonl"
    line.write_text(json.dumps({"messages": MESSAGES[:1]}))
    given = ["explain", str(directory), f"{line}#1", str(line), "--block-size"]
    assert main([*given, "16"]) == 0
    assert "Nothing was compared" not in capsys.readouterr().out
    assert main([*given, "4096"]) == 3
    assert "Nothing was compared: a request has no full block" in capsys.readouterr().out
    assert main([*given, "4096", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["cause"], found["first"]["num_blocks"]) == (None, 0)
    assert found["text"].startswith("Nothing was compared")


def test_two_engines_with_seeds_of_their_own_are_not_called_equal(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = tmp_path / "line.jsonl"
    line.write_text(json.dumps({"messages": MESSAGES[:1]}))
    engine = "vllm serve org/qwen --block-size 16 --prefix-caching-hash-algo xxhash"
    given = ["explain", str(directory), f"{line}#1", str(line), "--engine-args", engine]
    assert main(given) == 0
    assert main([*given, "--first-engine-args", engine]) == 1
    assert "PYTHONHASHSEED" in capsys.readouterr().err


def test_the_first_difference_is_shown_in_context(qwen: Normalizer) -> None:
    found = explained(qwen, FIRST, with_system("10:41", "10:42"))
    assert found.first.before == found.second.before
    assert found.first.after.startswith("1 now")
    assert found.second.after.startswith("2 now")


def test_the_command_finds_the_nearest_request_of_a_trace(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(name: str, text: str) -> str:
        messages = [{"role": "system", "content": LONG}, {"role": "user", "content": text}]
        return json.dumps({"id": name, "messages": messages}) + "\n"

    trace = tmp_path / "trace.jsonl"
    near = LONG + "One. " + LONG
    trace.write_text(line("far", "Something else. " + near) + line("near", near))
    later = tmp_path / "later.jsonl"
    later.write_text(line("later", near.replace("One", "Two")))
    model = str(directory)
    status = main(["explain", model, str(trace), str(later), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (status, found["cause"]) == (3, "message_edited")
    assert found["first"]["after"].startswith("One")
    assert main(["explain", model, f"{trace}:near", f"{trace}#2"]) == 0
    assert "blocks shared" in capsys.readouterr().out


def test_lines_of_a_trace_without_an_exact_answer_are_left_out_and_counted(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = tmp_path / "later.jsonl"
    later.write_text(json.dumps({"prompt": LONG + "b"}))
    bad = "nonsense\n" + json.dumps({"prompt": ""}) + "\n"
    trace = tmp_path / "trace.jsonl"
    trace.write_text(bad + json.dumps({"prompt": LONG + "a"}))
    assert main(["explain", str(directory), str(trace), str(later)]) == 0
    shown = capsys.readouterr()
    assert " blocks shared" in shown.out
    assert "invalid_request 1, empty_prompt 1" in shown.err
    trace.write_text(bad)
    assert main(["explain", str(directory), str(trace), str(later)]) == 1
    assert "has an exact answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "source", "message"),
    [
        ('{"id": "a", "prompt": "x"}\n', "{}:b", "has no request with id b"),
        ("", "{}", "has no request"),
        ('{"prompt": "x"}\nnonsense\n', "{}", "line 2: the line is not JSON"),
        ('{"prompts": "x"}\n', "{}", "did you mean 'prompt'"),
        ('{"prompt": "x"}\n', "{}#2", "has no request in line 2"),
    ],
)
def test_a_request_that_cannot_be_read_is_bad_usage(
    lines: str, source: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text(lines)
    assert main(["explain", EMBEDDED_MODEL, source.format(path), source.format(path)]) == 2
    assert message in capsys.readouterr().err


def test_no_excerpt_is_shown_where_no_token_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "requests.jsonl"
    salted = {"prompt": LONG, "cache_salt": "b"}
    path.write_text("".join(json.dumps(each) + "\n" for each in ({"prompt": LONG}, salted)))
    assert main(["explain", EMBEDDED_MODEL, f"{path}#1", f"{path}#2"]) == 3
    shown = capsys.readouterr().out
    assert "first block that differs: 0; no token ID differs\ncause: cache_salt" in shown


def test_the_page_shows_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "hit-rate.md").read_text(encoding="utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0]
    misses = ROOT / "examples" / "misses.jsonl"
    assert main(["explain", EMBEDDED_MODEL, f"{misses}:morning", f"{misses}:later"]) == 3
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    "name",  # the others are compared by their parts
    sorted({*Request._fields} - {"messages", "prompt", "images", "videos", "audios"}),
)
def test_every_field_in_which_requests_differ_is_a_change(name: str) -> None:
    other: dict[str, Any] = {name: "x"}
    second = Request()._replace(**other)
    assert [change.restored for change in changes(Request(), second)] == [Request()]


HI = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [
        ({"prompt": "a bridge"}, {"prompt": "a tower"}, Cause.PROMPT),
        ({"prompt": "Hi"}, {"messages": [HI]}, Cause.PROMPT),
        ({"images": [ImageSize(8, 9)]}, {"images": [ImageSize(9, 8)]}, Cause.ITEM_REPLACED),
        ({"images": [ImageSize(8, 9)]}, {"images": [ImageSize(8, 9, "a")]}, Cause.ITEM_UUID),
        (
            {"videos": [VideoSize(8, 8, 2, 1.0)] * 2},
            {"videos": [VideoSize(8, 8, 2, 1.0), VideoSize(8, 8, 3, 1.0)]},
            Cause.ITEM_REPLACED,
        ),
        ({"messages": [HI]}, {"messages": [{**HI, "role": "tool"}]}, Cause.MESSAGE_EDITED),
        ({"messages": [HI]}, {"messages": [{**HI, "name": "Ann"}]}, Cause.MESSAGE_EDITED),
        ({"messages": [HI]}, {"messages": ["Hi"]}, Cause.MESSAGE_EDITED),
    ],
)
def test_what_differs_is_restored(
    first: dict[str, Any], second: dict[str, Any], cause: Cause
) -> None:
    one, other = Request(**first), Request(**second)
    assert [(change.cause, change.restored) for change in changes(one, other)] == [(cause, one)]
