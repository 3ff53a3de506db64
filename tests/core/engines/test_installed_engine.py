"""An engine from another package, `toy_engine`: no line of mmroute knows it."""

from __future__ import annotations

import base64
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from command_line import run
from installed import describe_project
from paths import ROOT
from PIL import Image
from toy_engine.settings import ToySettings
from xxhash import xxh3_64_digest

from mmroute import EngineSettings, ImageSize, InexactError, ModelError, Normalizer, Reason, Routing
from mmroute.kv_events import BlockIndex, WorkerRank
from mmroute.kv_events.holders import Blocks

pytestmark = pytest.mark.process  # entry points are read when a process begins

PROJECT: Final = ROOT / "tests" / "helpers" / "toy_engine" / "pyproject.toml"
COMMAND: Final = "toyserve --page-size 4 --port 8000"
PAGE: Final = 4
GUIDE: Final = (ROOT / "docs" / "new-engine.md").read_text(encoding="utf-8")
BLOCK: Final = re.compile(r"```(?:python|toml)\n(.*?)```", re.DOTALL)
Installed: TypeAlias = Callable[..., Any]


def picture(colour: str) -> bytes:
    """A file of 56x28 pixels: two features of the small model."""
    file = io.BytesIO()
    Image.new("RGB", (56, 28), colour).save(file, "png")
    return file.getvalue()


def chat_of(file: bytes) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(file).decode()}"
    parts = [{"type": "text", "text": "Read this meter: "}, {"type": "image", "url": url}]
    return {"messages": [{"role": "user", "content": parts}]}


def toy(model: Path, command: str = COMMAND) -> Normalizer:
    settings = EngineSettings.from_args(command)
    return Normalizer.from_pretrained(model, backend="toy", engine_settings=settings)


def check(model: Path) -> bool:
    return Normalizer.from_pretrained(model, backend="toy", self_check=True) is not None


def answer(model: Path, fields: dict[str, Any]) -> Routing:
    return toy(model).normalize(**fields)


def add_site(site: str) -> None:
    sys.path.append(site)  # the path's own method would be sent with a copy of it


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Calls a function in a process in which the toy is installed, as pip would do it."""
    site = tmp_path_factory.mktemp("site")
    describe_project(site, PROJECT)
    pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=add_site, initargs=(str(site),))
    with pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


@pytest.fixture
def model(small_model: Callable[[str], Path]) -> Path:
    return small_model("small-qwen2.5-vl")


def test_it_answers_chats_with_pictures(installed: Installed, model: Path) -> None:
    file = picture("red")
    routing = installed(answer, model, chat_of(file))
    assert routing.exact, routing.message
    text = "Read this meter: <|vision_start|><|image_pad|><|vision_end|>"
    expected = Normalizer.from_pretrained(model).normalize(
        prompt=f"<|im_start|>user{text}<|im_end|><|im_start|>assistant", images=[ImageSize(56, 28)]
    )
    assert routing.token_ids.tolist() == expected.token_ids.tolist()
    assert routing.placeholders == expected.placeholders
    assert [str(identity) for identity in routing.identities] == [sha256(file).hexdigest()]


def test_a_loaded_model_passes_the_self_check(installed: Installed, model: Path) -> None:
    assert installed(check, model)


def test_its_hashes_cover_tokens_and_pictures(installed: Installed, model: Path) -> None:
    red, blue = (installed(answer, model, chat_of(picture(c))) for c in ("red", "blue"))
    ids = red.token_ids
    assert ids.tolist() == blue.token_ids.tolist()
    hashes, others = red.page_hashes(PAGE), blue.page_hashes(PAGE)
    (placed,) = red.placeholders
    first = placed.offset // PAGE  # the first page with a feature
    assert first > 0
    assert hashes[0] == xxh3_64_digest(ids[:PAGE].astype("<u4").tobytes())
    assert hashes[:first] == others[:first]
    assert set(hashes[first:]).isdisjoint(others[first:])
    assert hashes == red.hashes()
    with pytest.raises(InexactError, match=r"Routing\.page_hashes"):
        red.block_hashes()


def prefixes(model: Path, fields: dict[str, Any]) -> list[list[Blocks]]:
    """How many pages two workers hold, after each batch of the first one's events."""
    hashes = toy(model).normalize(**fields).page_hashes(PAGE)
    index = BlockIndex()
    index.apply("other", event(["00" * 8], []))
    found = []
    for stored, removed in ((hashes.hex()[:2], []), (hashes.hex()[2:], hashes.hex()[:1])):
        index.apply("worker", event(stored, removed))
        found.append([*index.longest_prefixes(hashes).values()])
        found.append([*index.longest_prefixes(hashes[1:]).values()])
    return found


def event(stored: Sequence[str], removed: Sequence[str]) -> bytes:
    batch = {"toy_time": 1.5, "page_size": PAGE, "stored": stored, "removed": removed}
    return json.dumps(batch).encode()


def test_the_index_finds_the_worker(installed: Installed, model: Path) -> None:
    fields = chat_of(picture("red"))
    pages = len(installed(answer, model, fields).token_ids) // PAGE
    assert pages > 2
    assert installed(prefixes, model, fields) == [[0, 2], [0, 1], [0, 0], [0, pages - 1]]


def test_the_command_line_gives_its_settings(installed: Installed) -> None:
    found = installed(EngineSettings.from_args, f"{COMMAND} ")
    assert found == ToySettings(page_size=PAGE, without_effect=("--port",))
    assert installed(EngineSettings.from_args, "toyserve ./qwen").model_string == "./qwen"


def refusal(line: str) -> tuple[Reason, str] | None:
    try:
        EngineSettings.from_args(line)
    except ModelError as error:
        return error.reason, str(error)
    return None


@pytest.mark.parametrize(
    ("line", "reason", "named"),
    [
        ("toyserve --speed 3", Reason.UNSUPPORTED_ENGINE_SETTING, "'--speed'"),
        ("toyserve --page 4", Reason.UNSUPPORTED_ENGINE_SETTING, "'--page'"),
        ("toyserve --page-size 0", Reason.INVALID_ENGINE_SETTING, "--page-size"),
        ("toyserve --page-size", Reason.INVALID_ENGINE_SETTING, "--page-size"),
        ("toyserve 'a", Reason.INVALID_ENGINE_SETTING, "quotation"),
    ],
)
def test_an_option_that_it_does_not_know_is_refused_by_name(
    installed: Installed, line: str, reason: Reason, named: str
) -> None:
    found = installed(refusal, line)
    assert found is not None
    assert found[0] is reason
    assert named in found[1]


@pytest.mark.parametrize("field", ["tools", "cache_salt"])
def test_a_field_that_it_does_not_read_is_refused_by_name(
    installed: Installed, model: Path, field: str
) -> None:
    values: dict[str, Any] = {"tools": [{"type": "function"}], "cache_salt": "tenant"}
    routing = installed(answer, model, {"prompt": "Hi", field: values[field]})
    assert routing.reason is Reason.UNSUPPORTED_FIELD
    assert field in routing.message


def on_the_command_line(model: Path, fields: dict[str, Any], *backends: str) -> dict[str, Any]:
    words = [f"--backend={name}" for name in backends]
    done = run("blocks", str(model), *words, "--engine-args", COMMAND, stdin=json.dumps(fields))
    assert done.status == 0, done.stderr
    answered: dict[str, Any] = json.loads(done.stdout)
    return answered


def test_the_command_line_answers_for_it(installed: Installed, model: Path) -> None:
    fields = chat_of(picture("red"))
    expected = installed(answer, model, fields).page_hashes(PAGE).hex()
    assert installed(on_the_command_line, model, fields, "toy")["block_hashes"] == expected
    both = installed(on_the_command_line, model, {"prompt": "Hi " * 40}, "toy", "vllm")
    assert both["backends"]["toy"]["exact"]
    assert both["backends"]["vllm"]["exact"]


def test_the_page_shows_lines_of_the_toy() -> None:
    files = [
        path.read_text(encoding="utf-8")
        for path in PROJECT.parent.iterdir()
        if path.suffix in (".py", ".toml")
    ]
    *shown, program = BLOCK.findall(GUIDE)
    assert len(shown) == 6
    assert [block for block in shown if not any(block in file for file in files)] == []
    assert "backend=" in program


def run_the_page(model: Path) -> tuple[int, dict[WorkerRank, Blocks]]:
    code = BLOCK.findall(GUIDE)[-1].replace("./qwen", str(model))
    names: dict[str, Any] = {}
    exec(compile(code, "new-engine.md", "exec"), names)  # noqa: S102 - the page is our own
    return len(names["hashes"]), names["held"]


def test_the_program_of_the_page_runs(installed: Installed, model: Path) -> None:
    pages, held = installed(run_the_page, model)
    assert pages > 1
    assert held == {WorkerRank("worker-0", 0): 1}
