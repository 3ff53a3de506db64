"""What was ported from where: the table of `tools/ports.toml`, written and compared.

    python tools/ports.py --write     after a docstring's "Source:" line has changed
    python tools/ports.py --changes   in an environment with another vLLM or transformers

The table has every upstream file that a docstring names, the modules that follow it, and the digest
of the file in the version that was read. With another version installed, ``--changes`` lists the
files that are no longer the same, and so the modules that must be read again.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.metadata
import importlib.util
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
TABLE: Final = Path(__file__).with_name("ports.toml")
UPSTREAMS: Final = ("vLLM", "transformers", "mistral-common", "SGLang", "tokenizers",
                    "FFmpeg", "Pillow", "libwebp", "minijinja", "minijinja-contrib",
                    "serde_json")  # fmt: skip
PACKAGES: Final = {
    "vLLM": "vllm",
    "transformers": "transformers",
    "mistral-common": "mistral_common",
    "SGLang": "sglang",
}
_SOURCES: Final = re.compile(r"[Ss]ources?: (.*?)(?:\n\s*\n|\Z)", re.DOTALL)
_NAMED: Final = re.compile(
    rf"\b({'|'.join(map(re.escape, UPSTREAMS))})(?:\s+(\d[\d.]*\d|\d)|(?=\s+``))"
    r"|``([\w./-]+\.(?:py|c|cpp|rs))``"
)
_HEAD: Final = """\
# What was ported from where. Written by `python tools/ports.py --write` from the
# "Source:" lines of docstrings; only `differs` is written by hand: what mmroute does otherwise on
# purpose. `sha256` is of the upstream file in that version, where it is a Python package.
# `read`, by hand too, is the version of a source that names none.
"""

Port = tuple[str, str, str]
"""Upstream, version, and the file as the docstring names it."""


def read_versions() -> dict[str, str]:
    """Upstream -> the version that is meant where a source names none."""
    read: dict[str, str] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["read"]
    return read


def named_sources() -> dict[Port, set[str]]:
    """Upstream file -> the modules whose docstrings name it."""
    found: dict[Port, set[str]] = {}
    read = read_versions()
    for path in sorted((ROOT / "mmroute").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for port in _ports_of(source, read) if _SOURCES.search(source) else ():
            found.setdefault(port, set()).add(path.relative_to(ROOT).as_posix())
    return found


def _ports_of(source: str, read: Mapping[str, str]) -> Iterator[Port]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(ast.parse(source)):
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        for sources in _SOURCES.findall(text or ""):
            upstream = version = folder = ""
            for name, number, file in _NAMED.findall(sources):
                if name:
                    upstream, version, folder = name, number or read[name], ""
                elif upstream:
                    # A bare name stands in the folder of the file before it.
                    whole = file if "/" in file else str(PurePosixPath(folder) / file)
                    folder = str(PurePosixPath(whole).parent)
                    yield upstream, version, whole


def recorded() -> dict[Port, dict[str, Any]]:
    """The entries of the table."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {(e["upstream"], e["version"], e["file"]): e for e in table["port"]}


def write() -> None:
    """The table anew; what stands in it by hand is kept, and digests of what is not installed."""
    old = recorded()
    read = [f'{upstream} = "{version}"' for upstream, version in read_versions().items()]
    blocks = [_HEAD + "\n" + "\n".join(["[read]", *read]) + "\n"]
    for port, modules in sorted(named_sources().items()):
        entry = old.get(port, {})
        upstream, version, file = port
        lines = [f'upstream = "{upstream}"', f'version = "{version}"', f'file = "{file}"']
        lines.append("here = [" + ", ".join(f'"{name}"' for name in sorted(modules)) + "]")
        digest = _digest(upstream, file, version) or entry.get("sha256")
        lines += [f'sha256 = "{digest}"'] if digest else []
        lines += [f'differs = "{differs}"'] if (differs := entry.get("differs")) else []
        blocks.append("[[port]]\n" + "\n".join(lines) + "\n")
    TABLE.write_text("\n".join(blocks), encoding="utf-8")


def changes() -> Iterator[str]:
    """The files that another version has otherwise, and the modules that follow them."""
    for (upstream, _, file), entry in recorded().items():
        now = _digest(upstream, file) if "sha256" in entry else None
        if now is not None and now != entry["sha256"]:
            yield f"{upstream} {file}: changed; read again: {', '.join(entry['here'])}"


def _digest(upstream: str, file: str, version: str | None = None) -> str | None:
    """The SHA-256 of an installed file; None if it is not installed, or not in that version."""
    package = PACKAGES.get(upstream)
    spec = importlib.util.find_spec(package) if package else None
    if spec is None or spec.origin is None:
        return None
    if version is not None and importlib.metadata.version(upstream) != version:
        return None
    root = Path(spec.origin).parent
    path = root / file
    if not path.is_file():  # named by its last part alone
        found = sorted(root.rglob(PurePosixPath(file).name))
        path = found[0] if len(found) == 1 else path
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the table anew")
    what.add_argument("--changes", action="store_true", help="list what is other where installed")
    if parser.parse_args().write:
        write()
        return
    for line in changes():
        print(line)


if __name__ == "__main__":
    main()
