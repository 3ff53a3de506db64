"""A family from another package: its spec and its grid come in through entry points."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from installed import describe, describe_project
from paths import ROOT
from small_models import Files

pytestmark = pytest.mark.process  # entry points are read when a process begins

EXAMPLE = ROOT / "examples" / "acme_family"


def install(site: Path) -> None:
    """What pip does with the example: the package, and what its metadata says."""
    shutil.copytree(EXAMPLE / "acme_family", site / "acme_family")
    describe_project(site, EXAMPLE / "pyproject.toml")


def mmroute(site: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT), str(site)]
    return subprocess.run(
        [sys.executable, "-m", "mmroute", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )


@pytest.fixture
def acme(changed_model: Callable[..., Path]) -> Path:
    def change(files: Files) -> None:
        files["config.json"]["model_type"] = "acme_vl"
        files["config.json"]["architectures"] = ["AcmeVLForConditionalGeneration"]
        # In the place where processor and tokenizer both read it.
        files["chat_template.jinja"] = files.pop("chat_template.json")["chat_template"]

    return changed_model("small-qwen2.5-vl", change)


def test_an_installed_family_answers(tmp_path: Path, acme: Path) -> None:
    site = tmp_path / "site"
    install(site)
    line = {
        "messages": [{"role": "user", "content": [{"type": "image"}]}],
        "images": [{"width": 65, "height": 128}],
    }
    done = mmroute(site, "tokens", str(acme), stdin=json.dumps(line))
    assert done.returncode == 0, done.stderr
    (placeholder,) = json.loads(done.stdout)["placeholders"]
    assert placeholder["length"] == 2 * 2
    assert "acme-vl" in mmroute(site, "families").stdout


def test_a_family_of_a_known_grid_and_layout_is_one_spec_file(tmp_path: Path, acme: Path) -> None:
    """Tiles in the text of Idefics 3, with other words: no line of code."""
    site = tmp_path / "site"
    package = site / "one_spec"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "one.toml").write_text(_ONE_SPEC)
    describe(site, "one-spec", {"mmroute.specs": {"one": "one_spec"}})
    line = {
        "prompt": "<|image_pad|>",
        "images": [{"width": 200, "height": 100}],
        "mm_processor_kwargs": {"tokens": 3},
    }
    done = mmroute(site, "tokens", str(acme), stdin=json.dumps(line))
    assert done.returncode == 0, done.stderr
    (placeholder,) = json.loads(done.stdout)["placeholders"]
    # One row of two tiles of three tokens each, and the whole image, each behind a word.
    assert [count for is_embed, count in placeholder["embed_runs"] if is_embed] == [3, 3, 3]


def test_an_installed_chat_renderer(tmp_path: Path, acme: Path) -> None:
    site = tmp_path / "site"
    package = site / "one_chat"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(_ONE_CHAT)
    spec = _ONE_SPEC.replace(
        "[image]", '[chat]\nrenderer = "shout"\nvalues.mark = "!"\n\n[image]', 1
    )
    (package / "one.toml").write_text(spec)
    describe(
        site,
        "one-chat",
        {"mmroute.specs": {"one": "one_chat"}, "mmroute.chats": {"shout": "one_chat:shout"}},
    )
    lines = [{"messages": [{"role": "user", "content": "a b"}]}, {"prompt": "A B!"}]
    done = mmroute(site, "tokens", str(acme), stdin="\n".join(map(json.dumps, lines)))
    assert done.returncode == 0, done.stderr
    chat, prompt = map(json.loads, done.stdout.splitlines())
    assert chat["token_ids"] == prompt["token_ids"]
    (package / "one.toml").write_text(spec.replace("values.mark", "values.word"))
    done = mmroute(site, "tokens", str(acme), stdin=json.dumps(lines[0]))
    assert done.returncode == 1
    assert "one-spec: chat.values of shout: missing a required" in done.stderr
    assert "argument: 'mark'" in done.stderr


_ONE_CHAT = """
from dataclasses import dataclass

from mmroute.chat import Chat
from mmroute.engines.vllm.messages import parse_chat


@dataclass(frozen=True)
class Shout(Chat):
    mark: str

    @property
    def origins(self):
        return {"chat": "one_chat"}

    def read(self, request, cache=None):
        return parse_chat(request)

    def render(self, chat, items, request):
        return "".join(message["content"].upper() for message in chat.messages) + self.mark


def shout(source, *, mark):
    return Shout(mark)
"""
_ONE_SPEC = """
family = "one-spec"
title = "A family that is one file"
context_length = 4096
checked = {}

[match]
"config.json:model_type" = ["acme_vl"]

[tokens.image]
text = "<|image_pad|>"

[image]
target = "image"

[image.grid]
name = "long_edge_tiles"
tokens_per_tile = 5
longest_edge = 200
tile_size = 100
split = true

[image.layout]
name = "tile_text"
fill = "<|image_pad|>"
tile = "<|vision_start|>{fill}"
whole = "<|vision_end|>{fill}"

[image.accepts]
tokens = "tokens_per_tile"
"""


def test_a_grid_that_cannot_be_imported_is_named(tmp_path: Path, acme: Path) -> None:
    site = tmp_path / "site"
    install(site)
    (site / "acme_family" / "ceiling_grid.py").write_text("raise RuntimeError('broken')\n")
    done = mmroute(site, "resolve", str(acme))
    assert done.returncode == 1
    assert "acme-family: 'acme_family.ceiling_grid:CeilingGrid' of mmroute.grids" in done.stderr
    assert "broken" in done.stderr
