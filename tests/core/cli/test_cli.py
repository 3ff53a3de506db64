"""The command line as checks and routers call it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from paths import ROOT

from mmroute import Normalizer
from mmroute.cli import main
from mmroute.cli.requests import answer_line, tokens_answer
from mmroute.model_directory import EMBEDDED_MODEL

IMAGES = ROOT / "examples" / "images.jsonl"
BASH = shutil.which("bash") or "/bin/bash"


def answers(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]


def test_every_line_is_answered_in_order() -> None:
    lines = [
        '{"id": "a", "prompt": "x"}',
        "not JSON",
        '{"id": 5, "messages": [{"role": "user", "content": "hi"}]}',
        '["a list"]',
        '{"id": "c", "images": [{"width": -1, "height": 2}], "prompt": "x"}',
        '{"id": "d", "add_special_tokens": "yes", "prompt": "x"}',
        '{"id": "e", "prompt": "x", "cache_salt": "a/b"}',
        "",
        '{"id": "\u2028", "prompt": "a\u2028b\u0085c", "unknown": 1}',
    ]
    result = run("tokens", EMBEDDED_MODEL, stdin="\n".join(lines))
    assert result.status == 0
    assert result.stderr == "mmroute: 5 without an exact answer: invalid_request 5\n"
    found = answers(result.stdout)
    assert [a["id"] for a in found] == ["a", None, 5, None, "c", "d", "e", "\u2028"]
    assert [a["exact"] for a in found] == [True, False, True, False, False, False, False, True]
    reasons = {a["reason"] for a in found if not a["exact"]}
    assert reasons == {"invalid_request"}
    assert "width must be a positive int" in found[4]["message"]
    assert "add_special_tokens" in found[5]["message"]


def test_a_script_can_ask_to_fail_on_lines_without_an_exact_answer() -> None:
    exact, inexact = '{"prompt": "x"}', '{"prompt": ""}'
    asked = ("tokens", EMBEDDED_MODEL, "--fail-on-inexact")
    assert run(*asked, stdin=exact).status == 0
    failed = run(*asked, stdin=f"{exact}\n{inexact}")
    assert (failed.status, len(answers(failed.stdout))) == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["tokens", EMBEDDED_MODEL, "--input", "/nowhere/x.jsonl"], 2, "/nowhere/x.jsonl"),
        (["tokens", EMBEDDED_MODEL, "--imput", "x"], 2, "Did you mean '--input'?"),
    ],
)
def test_wrong_usage_is_json_where_json_is_asked_for(
    arguments: list[str], status: int, words: str
) -> None:
    failed = run(*arguments, "--json")
    assert failed.status == status
    assert words in json.loads(failed.stdout)["error"]["message"]


def test_an_error_is_json_where_json_is_asked_for(tmp_path: Path) -> None:
    failed = run("resolve", str(tmp_path), "--json")
    assert (failed.status, failed.stderr) == (1, "")
    error = json.loads(failed.stdout)["error"]
    assert error["reason"] == "unknown_family"
    assert error["message"]


def test_resolve_shows_values_and_places(
    small_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(small_model("small-gemma-3"))
    assert main(["resolve", model, "--json"]) == 0
    resolved = json.loads(capsys.readouterr().out)
    assert resolved["family"] == "gemma-3"
    values = {v["name"]: v for v in resolved["values"]}
    assert values["tokens_per_image"]["source"] == "processor_config.json:image_seq_length"
    assert main(["resolve", model, "--model-id", "org/name"]) == 0
    shown = capsys.readouterr().out
    assert "org/name" in shown
    assert "processor_config.json:image_seq_length" in shown


def test_resolve_shows_the_value_that_counts_and_its_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "vllm serve m --max-model-len 4096 --limit-mm-per-prompt.image 2 --lora-modules a=/a"
    assert main(["resolve", EMBEDDED_MODEL, "--json", "--engine-args", line]) == 0
    values = json.loads(capsys.readouterr().out)["values"]
    found = {value["name"]: (value["value"], value["source"]) for value in values}
    assert len(found) == len(values)
    assert found["max_model_len"] == (4096, "--max-model-len")
    assert found["limits"] == ({"image": 2}, "--limit-mm-per-prompt")
    assert found["loras"] == ({"a": "/a"}, "--lora-modules")
    assert "block_size" not in found


def test_families_lists_what_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["families", "--json"]) == 0
    listed = {f["family"]: f for f in json.loads(capsys.readouterr().out)}
    assert listed["qwen3-vl"]["checked"]["vllm"] == ["0.33.0"]
    assert listed["llava-next-video"]["geometries"].keys() == {"video"}
    assert listed["nemotron-omni"]["rust_frontend_images"]
    assert not listed["gemma-3"]["rust_frontend_images"]
    assert main(["families"]) == 0
    shown = capsys.readouterr().out
    assert "qwen3-vl" in shown
    assert "nemotron-omni" in shown.partition("rust frontend:")[2]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["tokns"], 2, "Did you mean 'tokens'?"),
        (
            ["resolve", EMBEDDED_MODEL, "--engine-args", "vllm serve --blok-size 3"],
            2,
            "--block-size",
        ),
        (["docs", "reasons#for-one-requst"], 2, "did you mean 'for-one-request'?"),
        (["tokens", EMBEDDED_MODEL, "--inpt", "x"], 2, "tokens: error: unrecognized arguments"),
        (["doctor", "x", "--vectrs=y"], 2, "Did you mean '--vectors'?"),
        (["blocks", EMBEDDED_MODEL, "x.jsonl"], 2, "Did you mean '--input x.jsonl'?"),
        (["tokens", EMBEDDED_MODEL, "-"], 2, "Did you mean '--input -'?"),
        ([], 2, "COMMAND"),
        (["tokens"], 2, "MODEL"),
        (["tokens", EMBEDDED_MODEL, "--input", "/nowhere/x.jsonl"], 2, "/nowhere/x.jsonl"),
        (["docs", "reason"], 2, "did you mean 'reasons'?"),
        (["resolve", "/nowhere/model"], 1, "model_not_found"),
        (["tokens", EMBEDDED_MODEL, "--backend", "vlm"], 2, "Did you mean 'vllm'?"),
    ],
)
def test_mistakes_are_told(arguments: list[str], status: int, words: str) -> None:
    result = run(*arguments)
    assert result.status == status
    assert words in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["resolve", "--json", EMBEDDED_MODEL],
        ["resolve", EMBEDDED_MODEL, "--json"],
        ["resolve", "--json", "--", EMBEDDED_MODEL],
    ],
)
def test_options_stand_anywhere(arguments: list[str]) -> None:
    assert run(*arguments).status == 0


def test_the_pages_come_along() -> None:
    listed = json.loads(run("docs", "--json").stdout)
    assert listed["reasons"] == "Reasons"
    shown = run("docs", "docs/reasons.md").stdout
    assert shown == (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")


def test_a_section_of_a_page() -> None:
    shown = run("docs", "reasons#for-one-request").stdout
    page = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    assert shown.startswith("## For one request\n")
    assert page.partition(shown)[2].startswith("## Elsewhere")


@pytest.mark.parametrize(
    "command", [["families"], ["families", "--all"], ["resolve", EMBEDDED_MODEL]]
)
def test_tables_fit_a_terminal(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*command).stdout.splitlines()
    assert len(lines) > 20
    assert max(map(len, lines)) <= 80


def test_input_that_is_not_utf8_is_told(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"prompt": "\xe9"}\n{"prompt": "e"}\n')
    result = run("tokens", EMBEDDED_MODEL, "--input", str(path))
    assert result.status == 0
    first, second = answers(result.stdout)
    assert "not UTF-8" in first["message"]
    assert second["exact"]


def test_a_byte_order_mark_is_no_part_of_the_first_request(tmp_path: Path) -> None:
    path = tmp_path / "bom.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": 7, "prompt": "a"}\n')
    (answer,) = answers(run("tokens", EMBEDDED_MODEL, "--input", str(path)).stdout)
    assert (answer["id"], answer["exact"]) == (7, True)


def test_requests_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "same.jsonl"
    path.write_text('{"prompt": "a"}\n', encoding="utf-8")
    result = run("tokens", EMBEDDED_MODEL, "--input", str(path), "--output", str(path))
    assert result.status == 2
    assert path.read_text(encoding="utf-8") == '{"prompt": "a"}\n'


@pytest.mark.process
def test_each_answer_comes_at_once() -> None:
    """A router may keep mmroute beside itself and wait for one answer before the next request."""
    command = [sys.executable, "-m", "mmroute", "tokens", EMBEDDED_MODEL]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        for _ in range(2):
            process.stdin.write(b'{"prompt": "a"}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["exact"]


@pytest.mark.parametrize(
    ("line", "reason", "words"),
    [
        ({"message": []}, "invalid_request", "did you mean 'messages'"),
        ({"prompt": "a", "image": []}, "invalid_request", "did you mean 'images'"),
        ({"prompt": "a", "loar": {}}, "invalid_request", "did you mean 'lora'"),
        ({"prompt": "a", "images": [{"widht": 1, "height": 1}]}, "invalid_request", "mean 'width'"),
        ({"prompt": "a", "chat_template": "x"}, "unsupported_field", "chat_template"),
        ({"prompt": "a b c d", "truncate_prompt_tokens": 3}, "unsupported_field", "truncate"),
    ],
)
def test_fields_that_would_change_the_answer(
    line: dict[str, Any], reason: str, words: str, normalizer: Callable[[str], Normalizer]
) -> None:
    answer = answer_line(json.dumps(line), normalizer(EMBEDDED_MODEL).answer, tokens_answer)
    assert answer["reason"] == reason
    assert words in answer["message"]


def test_fields_without_influence_are_ignored(normalizer: Callable[[str], Normalizer]) -> None:
    line = {"prompt": "a", "model": "m", "max_tokens": 5, "tool_choice": "auto", "documents": None}
    assert answer_line(json.dumps(line), normalizer(EMBEDDED_MODEL).answer, tokens_answer)["exact"]


@pytest.mark.process
def test_version() -> None:
    command = [sys.executable, "-m", "mmroute", "--version"]
    assert subprocess.check_output(command, text=True) == f"mmroute {version('mmroute')}\n"


def test_blocks_answers_the_examples(tmp_path: Path) -> None:
    output = tmp_path / "answers.jsonl"
    status = main(["blocks", EMBEDDED_MODEL, "--input", str(IMAGES), "--output", str(output)])
    assert status == 0
    first, *_, unknown = answers(output.read_text(encoding="utf-8"))
    assert len(first["block_hashes"]) == 2
    assert first["image_identity_sources"] == ["content_hash"]
    assert unknown["reason"] == "image_identity_unknown"


def test_blocks_covers_the_model_string_and_the_settings(
    small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    model = str(small_model("small-pixtral-hf"))

    def hashes(*options: str) -> list[str]:
        output = tmp_path / "answers.jsonl"
        arguments = ["blocks", model, "--input", str(IMAGES), "--output", str(output)]
        assert main([*arguments, *options]) == 0
        found: list[str] = answers(output.read_text(encoding="utf-8"))[0]["block_hashes"]
        return found

    plain = hashes()
    assert hashes("--model-id", model, "--algorithm", "sha256") == plain
    smaller = hashes("--block-size", "8")
    others = [
        hashes("--model-id", "org/other"),
        hashes("--algorithm", "sha256_cbor"),
        hashes("--algorithm", "xxhash", "--hash-seed", "0"),
        hashes("--hash-seed", "0"),
        smaller,
    ]
    assert not {*plain} & {digest for digests in others for digest in digests}
    assert len(smaller) // 2 == len(plain)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--algorithm", "xxhash"], "PYTHONHASHSEED"),
        (["--algorithm", "sha265"], "sha256_cbor"),
        (["--block-size", "0"], "must be an integer of at least 1"),
        (["--block-size", "x"], "must be an integer of at least 1"),
        (["--image-host", "localhost:80"], "without scheme, port or path"),
        (["--image-host", ""], "--image-host"),
        (["--image-network", "10.0.0.0/8"], "no effect without --image-host"),
        (["--image-host", "*", "--image-network", "x"], "--image-network"),
    ],
)
def test_bad_settings_of_blocks(options: list[str], words: str) -> None:
    result = run("blocks", EMBEDDED_MODEL, *options)
    assert result.status == 2
    assert words in result.stderr


@pytest.mark.process
def test_a_shell_completes_commands_options_and_files(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").touch()
    script = run("--print-completion", "bash").stdout

    def completed(*words: str) -> list[str]:
        listed = " ".join(words)
        ask = f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _shtab_mmroute"
        shown = f'{script}\n{ask} mmroute "${{COMP_WORDS[-1]}}"; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(
            [BASH, "-c", shown], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert completed("mmroute", "fam") == ["families"]
    assert completed("mmroute", "blocks", "--block-s") == ["--block-size"]
    assert "requests.jsonl" in completed("mmroute", "tokens", "x", "--input", "req")


def test_the_command_alone_shows_its_help_and_empty_input_is_named(tmp_path: Path) -> None:
    alone = run()
    assert (alone.status, alone.stdout) == (2, "")
    assert "commands:" in alone.stderr
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    result = run("tokens", EMBEDDED_MODEL, "--input", str(empty))
    assert (result.status, result.stderr) == (0, f"mmroute: {empty} has no request lines\n")


def test_a_wrong_type_is_named_in_the_words_of_json() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": "text"}}
    wrong_tool = {"messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    lines = ["null", '{"messages": true}', '{"messages": [null]}', '{"prompt": ["a"]}', "[1]"]
    (answer,) = run("tokens", EMBEDDED_MODEL, stdin=json.dumps(wrong_tool)).stdout.splitlines()
    message = json.loads(answer)["message"]
    assert "parameters" in message
    assert "found 'text'" in message
    answers = run("tokens", EMBEDDED_MODEL, stdin="\n".join(lines)).stdout.splitlines()
    found = [json.loads(answer)["message"].split("found ")[1].split(";")[0] for answer in answers]
    assert found == ["null", "true", "null", "array", "array"]
