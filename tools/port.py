"""What another release of the engine changes: from its wheel to a page, in one command.

    python tools/port.py --to 0.34.0 [--from 0.33.0] [--transformers 5.23.0] [--page FILE] [--write]
    python tools/port.py --engine sglang --to 0.5.24 [--from 0.5.23] [--page FILE]

Runs in an environment of the release before, without a GPU. It downloads the wheels of both
releases with pip, and says which pins move, which watched files are changed, moved, gone or new
beside a watched one, and which architectures, options and variables are new or gone. Then it
replays the vectors of all models (or of ``--models``) in the new release's code, one process for
each, and goes on where one fails. What differs or fails there is replayed in the old release's code
too: where that does as well, the environment is the cause, such as a package that is missing.
Watched are the files that ``tools/ports.toml`` names, and the modules of the architectures that the
specs name.

``--write`` adds the release to `proved` of the newest profile where every replayed answer is the
same, and else moves that profile into ``engines/vllm/versions.py``, as the skeleton of an era.

The vectors of SGLang are not replayed here: ``tools/generate_sglang.py`` does it in an environment
of the release, as `docs/new-version.md` says.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from generate_sglang_lists import architectures as sglang_architectures
from ports import PACKAGES, ROOT, read_versions, recorded
from vector_files import VECTORS

from mmroute.families.matching import known_families

PROFILE: Final = ROOT / "mmroute" / "engines" / "vllm" / "profile.py"
VERSIONS: Final = PROFILE.with_name("versions.py")
_MODELS: Final = "model_executor/models"
_REGISTRY: Final = f"{_MODELS}/registry.py"
_OPTION: Final = re.compile(r"""["'](--[a-z][a-z0-9-]+)["']""")
_VARIABLE: Final = re.compile(r'^\s+"(VLLM_[A-Z0-9_]+)":', re.MULTILINE)
_SGLANG_VARIABLE: Final = re.compile(r"^\s+(SGLANG_[A-Z0-9_]+)\s*=\s*Env", re.MULTILINE)
_PIN: Final = re.compile(
    r"^Requires-Dist: ([\w.-]+)(?:\[[^]]*\])?[ (]*([^;)\n]*)\)?$", re.MULTILINE
)
_ALIKE: Final = 0.5  # shared lines of a file that has moved
_SECONDS: Final = 1800  # for the vectors of one model


def unpacked(package: str, version: str, cache: Path) -> Path:
    """The directory of a release's wheel, which pip downloads once."""
    directory = cache / f"{package}-{version}"
    if not directory.is_dir():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
        subprocess.run([*pip, "-d", str(cache), f"{package}=={version}"], check=True)
        (wheel,) = cache.glob(f"{package}-{version}-*.whl")
        partial = directory.with_suffix(".part")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial, [n for n in archive.namelist() if not n.endswith(".so")])
        partial.rename(directory)
    return directory


def pins(directory: Path) -> dict[str, str]:
    """What a wheel requires, without its extras."""
    (metadata,) = directory.glob("*.dist-info/METADATA")
    return dict(_PIN.findall(metadata.read_text(encoding="utf-8")))


def architectures(package: Path) -> dict[str, str]:
    """The architectures of vLLM's registry, with the module or package of each, as a path."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse((package / _REGISTRY).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                    module = getattr(value.elts[0], "value", None)
                    if isinstance(key.value, str) and isinstance(module, str):
                        path = f"vllm/{_MODELS}/{module}" if "." not in module else module
                        found[key.value] = path.replace(".", "/").removeprefix("vllm/")
    return found


def watched(upstream: str, package: Path) -> dict[str, set[str]]:
    """The files that are followed, and what follows each: modules, and families."""
    found: dict[str, set[str]] = {}
    for (name, _, file), entry in recorded().items():
        if name == upstream:
            found.setdefault(file, set()).update(entry["here"])
    if upstream == "vLLM":
        modules = architectures(package)
        for family in known_families():
            for ref, values in family.match.items():
                if "architect" in str(ref):
                    for file in _files(package, {modules[v] for v in values if v in modules}):
                        found.setdefault(file, set()).add(f"model_specs: {family.family}")
    return found


def _files(package: Path, modules: Iterable[str]) -> Iterator[str]:
    for module in modules:
        if (package / module).is_dir():
            yield from (f.relative_to(package).as_posix() for f in (package / module).rglob("*.py"))
        else:
            yield f"{module}.py"


def file_changes(upstream: str, old: Path, new: Path) -> Iterator[tuple[str, str, str]]:
    """Each watched file that is not the same, what became of it, and what follows it."""
    before, after = _sources(old), _sources(new)
    followed = watched(upstream, old)
    for named, followers in sorted(followed.items()):
        file = _found(named, before)
        if not file.endswith(".py"):
            yield file, "not in a wheel; compare the sources", ", ".join(sorted(followers))
            continue
        if file not in before:
            yield file, "not in the old release", ", ".join(sorted(followers))
            continue
        if file not in after:
            moved = _moved(before[file], {f: t for f, t in after.items() if f not in before})
            what = f"moved to {moved}" if moved else "gone"
        elif before[file] == after[file]:
            continue
        else:
            lines = [set(text.splitlines()) for text in (before[file], after[file])]
            what = f"changed: {len(lines[1] - lines[0])} lines new, {len(lines[0] - lines[1])} gone"
        yield file, what, ", ".join(sorted(followers))
    folders = {file.rpartition("/")[0] for file in followed} - {""}
    for file in sorted(after.keys() - before.keys()):
        if file.rpartition("/")[0] in folders:
            yield file, "new beside a watched one", ""


def _found(named: str, files: Iterable[str]) -> str:
    """The path of a file that a docstring may name by its last part alone."""
    alike = [file for file in files if file == named or file.endswith(f"/{named}")]
    return alike[0] if len(alike) == 1 else named


def _sources(package: Path) -> dict[str, str]:
    files = package.rglob("*.py")
    return {
        f.relative_to(package).as_posix(): f.read_text(encoding="utf-8", errors="replace")
        for f in files
    }


def _moved(text: str, candidates: Mapping[str, str]) -> str:
    lines = {line for line in text.splitlines() if line.strip()}
    shared = {
        file: len(lines & set(other.splitlines())) / max(1, len(lines))
        for file, other in candidates.items()
    }
    best = max(shared, key=shared.__getitem__, default="")
    return best if best and shared[best] >= _ALIKE else ""


def names(package: Path) -> dict[str, set[str]]:
    """The names that a release has: architectures, options and variables."""
    options = [package / "engine" / "arg_utils.py", *(package / "entrypoints").rglob("*arg*.py")]
    return {
        "architectures": set(architectures(package)),
        "options": {n for f in options for n in _OPTION.findall(f.read_text(encoding="utf-8"))},
        "variables": set(_VARIABLE.findall((package / "envs.py").read_text(encoding="utf-8"))),
    }


def sglang_names(package: Path) -> dict[str, set[str]]:
    """The same of a release of SGLang, whose options are the fields of a class."""
    arguments = (package / "srt" / "server_args.py").read_text(encoding="utf-8")
    classes = (n for n in ast.parse(arguments).body if isinstance(n, ast.ClassDef))
    (body,) = (node.body for node in classes if node.name == "ServerArgs")
    fields = [ast.unparse(node.target) for node in body if isinstance(node, ast.AnnAssign)]
    variables = (package / "srt" / "environ.py").read_text(encoding="utf-8")
    return {
        "architectures": set(sglang_architectures(package / "srt" / "models")),
        "options": {f"--{name.replace('_', '-')}" for name in fields},
        "variables": set(_SGLANG_VARIABLE.findall(variables)),
    }


def replayed(
    models: Iterable[str], new: Sequence[Path], old: Sequence[Path], further: list[str]
) -> dict[str, Any]:
    """What each model's requests gave in the new release's code.

    Args:
        models: the names of the vectors.
        new: the directories of the packages of the new release.
        old: the same of the old one.
        further: further arguments of ``tools/port_replay.py``.

    Returns:
        For each model either ``failed``, with the error; or ``requests``, their number, and
        ``differing``, a list of IDs for each field. ``here``, with an error or a number of
        requests, stands for what is as in the old release, and so shows nothing.
    """
    results: dict[str, Any] = {}
    for model in models:
        result = _replayed(model, new, further)
        if result.get("differing", True):
            result = _unlike(result, _replayed(model, old, further))
        results[model] = result
        print(f"{model}: {_summary(result)}", file=sys.stderr)
    return results


def _replayed(model: str, path: Sequence[Path], further: list[str]) -> dict[str, Any]:
    places = [*map(str, path), str(ROOT), os.environ.get("PYTHONPATH")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "VLLM_TARGET_DEVICE": "cpu",
    }
    command = [sys.executable, str(ROOT / "tools" / "port_replay.py"), model, *further]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env=environment,
            timeout=_SECONDS,
        )
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer within {_SECONDS} seconds"}
    except (IndexError, ValueError):
        said = done.stderr.strip().splitlines() or ["nothing"]
        return {"failed": said[-1].strip()}
    return result


def _unlike(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """What failed or differed in the new release's code, and not in the old one's."""
    if "failed" in new:
        return {"here": new["failed"]} if "failed" in old or new.get("lacks_package") else new
    before = {field: set(ids) for field, ids in old.get("differing", {}).items()}
    differing = {
        field: [i for i in ids if i not in before.get(field, ())]
        for field, ids in new["differing"].items()
    }
    both = set().union(*new["differing"].values()) & set().union(*before.values())
    return {
        "requests": new["requests"],
        "differing": {field: ids for field, ids in differing.items() if ids},
        "here": len(both),
    }


def _summary(result: Mapping[str, Any]) -> str:
    if "failed" in result:
        return f"failed: {result['failed']}"
    if "requests" not in result:
        return f"cannot be replayed here: {result['here']}"
    fields = ", ".join(f"{field} {len(ids)}" for field, ids in sorted(result["differing"].items()))
    both = f"; {result['here']} differ in the old code as well" if result.get("here") else ""
    return f"{result['requests']} requests, {fields or 'all the same'}{both}"


def page(arguments: argparse.Namespace, cache: Path) -> tuple[str, bool]:
    """The page, and whether every replayed answer is the same."""
    upstream, named = _ENGINES[arguments.engine]
    package = PACKAGES[upstream]
    old, new = (unpacked(package, v, cache) for v in (arguments.old, arguments.to))
    parts = [f"# {upstream} {arguments.old} to {arguments.to}"]
    before, after = pins(old), pins(new)
    moved = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    cells = [(n, before.get(n, "absent"), after.get(n, "absent")) for n in moved]
    parts += _table("Pins that move", ("package", arguments.old, arguments.to), cells)
    head = ("file", "is", "followed by")
    changes = list(file_changes(upstream, old / package, new / package))
    parts += _table(f"Watched files of {upstream}: {len(changes)}", head, changes)
    news, olds = [new], [old]
    if arguments.transformers:
        read = read_versions()["transformers"]
        others = [unpacked("transformers", v, cache) for v in (read, arguments.transformers)]
        olds.append(others[0])
        news.append(others[1])
        name = PACKAGES["transformers"]
        changes = list(file_changes("transformers", *(other / name for other in others)))
        title = f"Watched files of transformers {read} to {arguments.transformers}: {len(changes)}"
        parts += _table(title, head, changes)
    had, has = named(old / package), named(new / package)
    for kind in had:
        rows = [(n, "new") for n in sorted(has[kind] - had[kind])]
        rows += [(n, "gone") for n in sorted(had[kind] - has[kind])]
        parts += _table(f"{kind.capitalize()}: {len(rows)}", ("name", "is"), rows)
    if arguments.engine == "sglang":
        return "\n".join([*parts, f"\n## What to do\n\n{_ASK_SGLANG}.\n"]), False
    further = ["--code", arguments.code] if arguments.code else []
    further += ["--params", arguments.params] if arguments.params else []
    results = replayed(arguments.models, news, olds, further)
    rows = [(model, _summary(result)) for model, result in results.items()]
    parts += _table("Vectors replayed in the new code", ("model", "fields that differ"), rows)
    what, same = verdict(arguments.to, results)
    return "\n".join([*parts, f"\n## What to do\n\n{what}.\n"]), same


def verdict(version: str, results: Mapping[str, Mapping[str, Any]]) -> tuple[str, bool]:
    """What to do with a release, and whether every answer that could be replayed is the same."""
    differs = any(r.get("differing") or "failed" in r for r in results.values())
    same = not differs and any("requests" in r for r in results.values())
    what = f"add {version} to `proved` of the newest profile" if same else _SKELETON
    if not (same or differs):
        what = "replay the vectors: without them nothing is proved"
    if missing := [model for model, r in results.items() if r.get("here")]:
        what += f". Replay elsewhere what could not be replayed here: {', '.join(missing)}"
    return what, same


_SKELETON: Final = (
    "give the release a profile: `--write` moves the newest one into `versions.py`, where what the "
    "release no longer does goes into its `replace`"
)
_ASK_SGLANG: Final = (
    "run `tools/generate_sglang_lists.py`, `tools/generate_sglang.py` and "
    "`tools/generate_sglang_events.py` where the release is installed; `docs/new-version.md` has "
    "the steps"
)
_ENGINES: Final[Mapping[str, tuple[str, Callable[[Path], dict[str, set[str]]]]]] = {
    "vllm": ("vLLM", names),
    "sglang": ("SGLang", sglang_names),
}


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *rows] if rows else []
    cells = (" | ".join(cell.replace("|", r"\|") for cell in line) for line in lines)
    return [f"\n## {title}\n", *(f"| {line} |" for line in cells)] if rows else []


def write(version: str, *, same: bool) -> None:
    """Add a release to the newest profile, or make that one an era of its own."""
    profile, versions = (f.read_text(encoding="utf-8") for f in (PROFILE, VERSIONS))
    head = re.search(
        r'"vllm",\s+"(.*?)",\s+"(.*?)",\s+"(.*?)",\s+proved=frozenset\({(.*?)}\)', profile
    )
    if head is None:
        sys.exit(f"{PROFILE}: its first lines are not as this program knows them")
    newest, era, prompts, proved = head.groups()
    minor = version.rpartition(".")[0]
    if same:
        eras, releases = f"{era.partition(' ')[0]} to {minor}", f'{proved}, "{version}"'
    else:
        eras, releases = minor, f'"{version}"'
        name, follower = f"_V{era.split()[-1].replace('.', '_')}", "replace(\n    VLLM,"
        skeleton = (
            f"{name}: Final = replace(\n    VLLM,\n    release=Release(\n        "
            f'"vllm", "{newest}", "{era}", "{prompts}", proved=frozenset({{{proved}}})\n    ),\n)\n'
        )
        at = versions.index(follower)
        start = versions.rindex("\n_V", 0, at) + 1
        rest = versions[start:].replace(follower, f"replace(\n    {name},", 1)
        versions = versions[:start] + skeleton + rest.replace("(VLLM, ", f"(VLLM, {name}, ", 1)
        VERSIONS.write_text(versions, encoding="utf-8")
    entry = f'"vllm", "{version}", "{eras}", "{prompts}", proved=frozenset({{{releases}}})'
    PROFILE.write_text(profile.replace(head[0], entry), encoding="utf-8")


def main() -> None:
    """Write the page, and with ``--write`` the profile."""
    every = sorted(p.stem for p in (*VECTORS.glob("*.jsonl"), *VECTORS.glob("families/*.jsonl")))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", required=True, metavar="VERSION", help="the release to look at")
    parser.add_argument("--engine", choices=_ENGINES, default="vllm", help="default: vllm")
    parser.add_argument("--from", dest="old", metavar="VERSION", help="default: that was read")
    parser.add_argument("--transformers", metavar="VERSION", help="with this transformers, too")
    parser.add_argument("--models", nargs="*", default=every, help="the vectors to replay")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "mmroute-port")
    parser.add_argument("--page", type=Path, help="the file for the page (default: the output)")
    parser.add_argument("--write", action="store_true", help="write the profile as well")
    parser.add_argument("--code", help="directory of processor code: a folder for each model")
    parser.add_argument("--params", help="params.json of pixtral-12b-2409")
    arguments = parser.parse_args()
    arguments.old = arguments.old or read_versions()[_ENGINES[arguments.engine][0]]
    if arguments.write and arguments.engine != "vllm":
        parser.error("--write is for vllm; docs/new-version.md has the steps for sglang")
    arguments.cache.mkdir(parents=True, exist_ok=True)
    text, same = page(arguments, arguments.cache)
    if arguments.page is None:
        print(text)
    else:
        arguments.page.write_text(text, encoding="utf-8")
    if arguments.write:
        write(arguments.to, same=same)


if __name__ == "__main__":
    main()
