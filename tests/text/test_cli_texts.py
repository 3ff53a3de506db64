"""``mmroute encode`` and ``decode``, as people and scripts call them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run
from small_vocabularies import SPECIALS, write_ranks, write_vocab_and_merges

from mmroute import load_tokenizer
from mmroute.cli import main
from mmroute.model_directory import EMBEDDED_MODEL


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(write_vocab_and_merges(tmp_path / "model", {"tokenizer_class": "Qwen2Tokenizer"}))


def process(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "mmroute", *arguments]
    return subprocess.run(command, capture_output=True, check=False)


def test_encode_prints_ids_that_decode_reads(source: str) -> None:
    text = "Hello the world\n<|im_end|> é"
    encoded = run("encode", source, "--input", "-", stdin=text)
    assert (encoded.status, encoded.stderr) == (0, "")
    ids = [int(i) for i in encoded.stdout.split()]
    assert ids == load_tokenizer(source).encode(text).tolist()
    decoded = run("decode", source, "-", stdin=encoded.stdout)
    assert decoded.stdout == text + "\n"
    listed = run("decode", source, "-", "--skip-special-tokens", stdin=str(ids))
    assert listed.stdout == text.replace("<|im_end|>", "") + "\n"


def test_encode_as_json(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["encode", source, " the", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == ["\u0120the"]
    assert found["notes"] == []
    assert main(["decode", source, str(found["token_ids"][0]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"text": " the", "notes": []}


def test_what_is_put_around_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": True, "bos_token": SPECIALS[1]}
    source = str(write_vocab_and_merges(tmp_path / "model", config))
    assert main(["encode", source, "a", "--add-special-tokens", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == [SPECIALS[1], "a"]


def test_notes_go_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write_ranks(tmp_path / "a.tiktoken"))
    assert main(["encode", path, "ab"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == [str(i) for i in load_tokenizer(path).encode("ab")]
    assert "note: a.tiktoken does not say which expression" in err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["encode", "SOURCE"], 2, "either TEXT or --input"),
        (["encode", "SOURCE", "a", "--input", "-"], 2, "either TEXT or --input"),
        (["encode", "SOURCE", "--input", "no such file"], 2, "no such file"),
        (["encode", "SOURCE", "a\udc80b"], 1, "cannot be encoded"),
        (["encode", "./no such directory/at all", "a"], 1, "model_not_found"),
        (["decode", "SOURCE", "1", "x"], 2, "found 'x'"),
        (["decode", "SOURCE", "999999"], 1, "999999 is not in 0"),
    ],
)
def test_the_exit_status_says_whose_fault_it_is(
    arguments: list[str], status: int, words: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    called = [source if a == "SOURCE" else a for a in arguments]
    assert main(called) == status
    out, err = capsys.readouterr()
    assert words in err
    assert out == ""
    assert main([*called, "--json"]) == status
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert words in f"{error['reason']}: {error['message']}"
    assert err == ""


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ("1] [2", "found '1]'"),
        ("[1, 2] 3", "JSON list"),
        ("[1 2]", "JSON list"),
        ("[1, -2]", "found -2"),
        ("[1, true]", "found True"),
    ],
)
def test_what_is_no_list_of_ids_is_bad_usage(source: str, ids: str, words: str) -> None:
    ended = run("decode", source, "-", stdin=ids)
    assert (ended.status, ended.stdout) == (2, "")
    assert words in ended.stderr


@pytest.mark.process
def test_a_stdout_that_cannot_take_the_text_is_a_failure(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    ids = load_tokenizer(source).encode("é").tolist()
    ended = process("decode", source, *map(str, ids))
    assert ended.returncode == 1
    assert b"PYTHONIOENCODING" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_a_file_that_is_not_utf_8_is_a_failure(
    source: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff")))
    assert main(["encode", source, "--input", "-"]) == 1
    assert "not UTF-8" in capsys.readouterr().err


def test_a_strip_shows_all_of_the_text_and_where_each_token_is(
    source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["encode", source, "Hello the 🦤\t!", "--strip"]) == 0
    strip, _, heading, *rows = capsys.readouterr().out.split("\n")
    assert strip == "Hello| the| |🦤|·|·|\\t|!"
    assert heading.split() == ["ID", "TOKEN", "CHARACTERS"]
    assert rows[0].split()[1:] == ["Hello", "0-5"]
    assert rows[1].split()[1:] == ["\u0120the", "5-9"]
    assert rows[-2] == "8 tokens, 13 characters"


def test_a_strip_as_json(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["encode", source, " the é", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == ["\u0120the", "\u0120", "\u00c3\u00a9"]
    assert found["offsets"] == [[0, 4], [4, 5], [5, 6]]


@pytest.mark.parametrize(
    "arguments", [["7493", "--skip-special-tokens", "1395"], ["--json", "7493", "1395"]]
)
def test_options_stand_anywhere(arguments: list[str]) -> None:
    assert run("decode", EMBEDDED_MODEL, *arguments).status == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_that_want_them(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(**environment: str) -> str:
        variables = {"TERM": "xterm-256color", "NO_COLOR": "", **environment}
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            terminal = Terminal()
            patch.setattr(sys, "stdout", terminal)
            assert main(["encode", source, "a\x1b[31mb\nc", "--strip"]) == 0
            return terminal.getvalue()

    coloured = shown()
    assert "\x1b[38;5;16;48;5;153ma\x1b[0m" in coloured
    assert "\x1b[31m" not in coloured  # what the text itself says to the terminal
    assert "\x1b" not in shown(NO_COLOR="1")
    assert "\x1b" not in shown(TERM="dumb")
