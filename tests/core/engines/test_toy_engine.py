"""An engine from another package comes in through an entry point, and the core asks its parts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toy_engine
from paths import ROOT

pytestmark = pytest.mark.process  # entry points are read when a process begins


@pytest.fixture
def site(tmp_path: Path) -> Path:
    shutil.copytree(Path(toy_engine.__file__).parent, tmp_path / "toy_engine")
    info = tmp_path / "toy_engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mmroute.engines]\ntoy = toy_engine:find_version\n")
    return tmp_path


def answers(site: Path, *arguments: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "mmroute", *arguments],
        input="\n".join(map(json.dumps, lines)),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(site)))},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_installed_engine(site: Path, small_model: Callable[[str], Path]) -> None:
    model = str(small_model("small-qwen2.5-vl"))
    image = {"type": "image", "uuid": "cat"}
    chat: dict[str, Any] = {
        "messages": [{"role": "user", "content": [image, {"type": "text", "text": "a b"}]}],
        "images": [{"width": 56, "height": 56}],
    }
    text = {"prompt": "a b"}
    several = {**chat, "messages": [{"role": "user", "content": [image] * 3}]}
    several["images"] = chat["images"] * 3
    toy = (model, "--backend", "toy", "--engine-args", "toyserve --block 2")
    found, plain, refused = answers(site, "tokens", *toy, lines=[chat, text, several])
    assert found["token_ids"][-len(plain["token_ids"]) :] == plain["token_ids"]
    assert refused["reason"] == "too_many_images"
    dog = [{**image, "uuid": "dog"}, {"type": "text", "text": "a b"}]
    other = {**chat, "messages": [{"role": "user", "content": dog}]}
    cats, dogs = answers(site, "blocks", *toy, lines=[chat, other])
    assert len(cats["block_hashes"]) == len(found["token_ids"]) // 2
    assert (cats["image_identities"], dogs["image_identities"]) == (["CAT"], ["DOG"])
    assert cats["block_hashes"][0] != dogs["block_hashes"][0]
