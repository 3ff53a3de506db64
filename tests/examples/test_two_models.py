"""The walk-through of `examples/two_models`: a served pair of models, and a router over HTTP."""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from server_helpers import process, wait_until_healthy
from two_models import router

from mmroute.lab.engines.process import free_port

pytestmark = pytest.mark.process

EXAMPLE: Final = Path(router.__file__)
MODELS: Final = ("qwen", "llava")
Prompts = list[tuple[str, list[bytes]]]


@pytest.fixture(scope="module")
def url(
    small_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    port, log = free_port(), tmp_path_factory.mktemp("two-models") / "log"
    qwen, llava = small_model("small-qwen2.5-vl"), small_model("small-llava-1.5")
    served = (f"qwen={qwen}", f"llava={llava}", "--port", str(port))
    with (
        process(*served, log=log) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as c,
    ):
        wait_until_healthy(c, server, log)
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def prompts(url: str) -> Prompts:
    with contextlib.closing(router.Render(url)) as render:
        assert render.models() == list(MODELS)
        return [(chat["model"], render.block_hashes(chat)) for chat in router.requests(MODELS)]


@pytest.mark.parametrize("model", MODELS)
def test_the_router_finds_what_was_cached(prompts: Prompts, model: str) -> None:
    own = [prompt for name, prompt in prompts if name == model]
    fleet = router.simulate(prompts)[model]
    assert fleet.requests == len(own) == router.CONVERSATIONS * router.TURNS
    assert fleet.blocks == sum(map(len, own))
    # Only a block that was in an earlier prompt can be a hit.
    ceiling = 1 - len({block for prompt in own for block in prompt}) / fleet.blocks
    assert fleet.rate("ceiling") == pytest.approx(ceiling)
    # A conversation stays where it began. What it shares with others, each worker computes once.
    starts = {tuple(prompt) for prompt in own if not hits_before(own, prompt)}
    shared = max(common_prefix(a, b) for a, b in itertools.combinations(starts, 2))
    lost = (len(router.WORKERS) - 1) * shared / fleet.blocks
    assert ceiling - lost <= fleet.rate("routed") <= ceiling
    assert fleet.rate("in turn") < fleet.rate("routed") - 0.1


def test_no_request_finds_another_models_blocks(prompts: Prompts) -> None:
    assert [fleet.foreign for fleet in router.simulate(prompts).values()] == [0, 0]
    # The same blocks under two names would be found.
    own = [prompt for name, prompt in prompts if name == "qwen"]
    twice = [(name, prompt) for prompt in own for name in MODELS]
    assert all(fleet.foreign for fleet in router.simulate(twice).values())


def test_the_script_as_it_is_typed(url: str) -> None:
    command = [sys.executable, str(EXAMPLE), "--url", url]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, _, *rows = printed.splitlines()
    for row, model in zip(rows, MODELS, strict=True):
        assert re.fullmatch(rf"{model} +80 +\d+( +\d+\.\d%){{3}} +0 +\d+\.\d ms", row), row


def test_it_says_when_nobody_serves() -> None:
    command = [sys.executable, str(EXAMPLE), "--url", f"http://127.0.0.1:{free_port()}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("no mmroute serve to be reached")


def hits_before(prompts: list[list[bytes]], prompt: list[bytes]) -> bool:
    """Whether most of a prompt was in an earlier one: whether it goes on with a conversation."""
    earlier = itertools.takewhile(lambda other: other is not prompt, prompts)
    return any(2 * common_prefix(prompt, other) > len(prompt) for other in earlier)


def common_prefix(a: list[bytes] | tuple[bytes, ...], b: list[bytes] | tuple[bytes, ...]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b)))  # noqa: B905 - of two lengths
