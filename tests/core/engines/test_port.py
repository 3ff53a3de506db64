"""`tools/port.py`: what it says of two releases, and what it writes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("port", ROOT / "tools" / "port.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("ports", None)


def package(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


BODY = "a = 1\nb = 2\nc = 3\nd = 4\n"
OLD = {
    "core/same.py": BODY,
    "core/other.py": BODY,
    "core/moved.py": "e = 5\nf = 6\ng = 7\n",
    "core/gone.py": "h = 8\n",
    "engine/arg_utils.py": 'add("--old")',
    "envs.py": 'variables = {\n    "VLLM_OLD": lambda: 1,\n}\n',
    "model_executor/models/registry.py": 'M = {"OldForAll": ("old", "OldForAll")}',
}
NEW = OLD | {
    "core/other.py": BODY + "i = 9\n",
    "elsewhere/found.py": "e = 5\nf = 6\nx = 0\n",
    "core/beside.py": "j = 10\n",
    "elsewhere/unrelated.py": "k = 11\n",
    "engine/arg_utils.py": 'add("--new")',
    "envs.py": 'variables = {\n    "VLLM_NEW": lambda: 1,\n}\n',
    "model_executor/models/registry.py": 'M = {"NewForAll": ("new", "NewForAll")}',
}
del NEW["core/moved.py"], NEW["core/gone.py"]


def test_what_became_of_each_watched_file(
    port: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = package(tmp_path / "old", OLD), package(tmp_path / "new", NEW)
    # One is named by its last part.
    named = ("core/same.py", "other.py", "core/moved.py", "core/gone.py", "rust/main.rs")
    entries: dict[Any, Any] = {("vLLM", "1", name): {"here": ["mmroute/x.py"]} for name in named}
    monkeypatch.setattr(port, "recorded", lambda: entries)
    monkeypatch.setattr(port, "known_families", tuple)
    assert {file: what for file, what, _ in port.file_changes("vLLM", old, new)} == {
        "core/other.py": "changed: 1 lines new, 0 gone",
        "core/moved.py": "moved to elsewhere/found.py",
        "core/gone.py": "gone",
        "core/beside.py": "new beside a watched one",
        "rust/main.rs": "not in a wheel; compare the sources",
    }
    found = {kind: port.names(new)[kind] - port.names(old)[kind] for kind in port.names(new)}
    expected = {"architectures": {"NewForAll"}, "options": {"--new"}, "variables": {"VLLM_NEW"}}
    assert found == expected


def test_specs_are_followed_by_the_modules_of_their_architectures(
    port: ModuleType, tmp_path: Path
) -> None:
    registry = (
        'M = {"Qwen3VLForConditionalGeneration": ("qwen3_vl", "X"),'
        ' "KimiK3ForConditionalGeneration": ("vllm.models.kimi_k3", "Y")}'
    )
    files = {"model_executor/models/registry.py": registry, "models/kimi_k3/common/model.py": BODY}
    watched = port.watched("vLLM", package(tmp_path / "vllm", files))
    assert "model_specs: qwen3-vl" in watched["model_executor/models/qwen3_vl.py"]
    assert "model_specs: kimi-k3" in watched["models/kimi_k3/common/model.py"]


def test_what_fails_in_the_old_release_too_is_no_change(
    port: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replayed(**results: Any) -> Any:
        new, old = results["new"], results["old"]
        monkeypatch.setattr(port, "_replayed", lambda _, path, __: new if path == ["new"] else old)
        return port.replayed(["m"], ["new"], ["old"], [])["m"]

    def answers(**differing: list[str]) -> dict[str, Any]:
        return {"requests": 3, "differing": differing}

    failed = {"failed": "ImportError: no torchaudio"}
    assert replayed(new=failed, old=failed) == {"here": "ImportError: no torchaudio"}
    assert replayed(new=failed, old=answers()) == failed
    assert replayed(new=failed | {"lacks_package": True}, old=answers()) == {
        "here": "ImportError: no torchaudio"
    }
    assert replayed(new=answers(), old=failed) == answers()
    found = replayed(new=answers(a=["1", "2"], b=["3"]), old=answers(a=["1"]))
    assert found == answers(a=["2"], b=["3"]) | {"here": 1}
    assert "all the same; 1 differ" in port._summary(
        replayed(new=answers(a=["1"]), old=answers(a=["1"]))
    )


SAME = {"requests": 3, "differing": {}}


@pytest.mark.parametrize(
    ("result", "what", "same"),
    [
        (SAME, "add 9.9 to `proved` of the newest profile", True),
        (
            {"here": "no torchaudio"},
            "add 9.9 to `proved` of the newest profile. Replay elsewhere what could not",
            True,
        ),
        ({"failed": "TypeError"}, "give the release a profile", False),
        (SAME | {"differing": {"n_tokens": ["1"]}}, "give the release a profile", False),
    ],
)
def test_a_release_has_an_era_of_its_own_only_where_an_answer_differs(
    result: dict[str, Any], what: str, same: bool, port: ModuleType
) -> None:
    told, proved = port.verdict("9.9", {"other": SAME, "m": result})
    assert (told.startswith(what), proved) == (True, same)
    nothing = "replay the vectors: without them nothing is proved"
    assert port.verdict("9.9", {}) == (nothing, False)
    assert port.verdict("9.9", {"m": {"here": "x"}})[1] is False


@pytest.mark.usefixtures("port")
def test_a_failure_is_told_whole_by_the_exception_at_its_root() -> None:
    failure = importlib.import_module("port_replay").failure
    error = RuntimeError("x" * 500)
    error.__cause__ = ModuleNotFoundError("No module named 'kaldi'")
    said = "ModuleNotFoundError: No module named 'kaldi'"
    assert failure(error) == {"failed": said, "lacks_package": True}
    told = failure(ValueError("a\n" + "x" * 500))
    assert told == {"failed": f"ValueError: a {'x' * 500}", "lacks_package": False}


@pytest.mark.process
def test_a_clone_without_an_installed_mmroute_is_enough() -> None:
    # Without `site` the dependencies are found, and what is installed in place is not.
    packages = [path for path in sys.path if Path(path).name == "site-packages"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(packages)}
    command = [sys.executable, "-S", str(ROOT / "tools" / "port.py"), "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_pins_are_read_without_extras(port: ModuleType, tmp_path: Path) -> None:
    text = (
        'Name: vllm\nRequires-Dist: a[x]<2,>=1\nRequires-Dist: b\nRequires-Dist: c; extra == "z"\n'
    )
    package(tmp_path, {"vllm-1.dist-info/METADATA": text})
    assert port.pins(tmp_path) == {"a": "<2,>=1", "b": ""}


@pytest.mark.parametrize("same", [True, False])
def test_a_release_gets_a_place_in_the_newest_era_or_one_of_its_own(
    same: bool, port: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = {}
    for name in ("PROFILE", "VERSIONS"):
        path = getattr(port, name)
        written[name] = tmp_path / path.name
        written[name].write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        monkeypatch.setattr(port, name, written[name])
    port.write("0.99.0", same=same)
    profile = written["PROFILE"].read_text(encoding="utf-8")
    versions = (
        written["VERSIONS"]
        .read_text(encoding="utf-8")
        .replace("mmroute.engines.vllm.profile import VLLM", "profile import VLLM")
    )
    written["VERSIONS"].write_text(versions, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("profile", "versions"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    eras = importlib.import_module("versions").ERAS
    before = importlib.import_module("mmroute.engines.vllm.versions").ERAS
    newest, former = eras[0].release, before[0].release
    assert newest.version == "0.99.0"
    assert "0.99.0" in newest.proved
    assert len(eras) == len(before) + (not same)
    if same:
        assert newest.proved == former.proved | {"0.99.0"}
    else:
        assert eras[1].release == former
        assert [era.release.era for era in eras[1:]] == [era.release.era for era in before]
    assert "0.99" in profile


def test_sglangs_options_are_the_fields_of_its_arguments(port: ModuleType, tmp_path: Path) -> None:
    files = {
        "srt/server_args.py": "class ServerArgs:\n    model_path: str\n    page_size: int = 1\n",
        "srt/environ.py": "class Envs:\n    SGLANG_NEW = EnvBool(False)\n    OTHER = EnvInt(1)\n",
        "srt/models/a.py": "class A: ...\nclass B: ...\nEntryClass = [A, B]\n",
        "srt/models/c.py": "EntryClass = C\n",
    }
    assert port.sglang_names(package(tmp_path, files)) == {
        "architectures": {"A", "B", "C"},
        "options": {"--model-path", "--page-size"},
        "variables": {"SGLANG_NEW"},
    }
