"""Write `request_fields.toml` of `mmroute/engines/vllm/bodies`: which release has which fields.

    python tools/generate_request_fields.py DIRECTORY

DIRECTORY has an unpacked wheel of each release (``pip download --no-deps vllm==X``, ``unzip``), by
its version: ``DIRECTORY/0.28.0/vllm``. The classes of requests are read, and not run.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mmroute.server.engines.vllm.routes import ROUTES

_TABLE: Final = Path(__file__).parents[1] / "mmroute/engines/vllm/bodies/request_fields.toml"
_HEAD: Final = """\
# Fields that not every release of vLLM from {first} to {last} has: the first that knows it, and the
# first that does not any more. Written by tools/generate_request_fields.py.
"""
_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "/tokenize": ("TokenizeCompletionRequest", "TokenizeChatRequest"),
    "/detokenize": ("DetokenizeRequest",),
    "/v1/chat/completions/render": ("ChatCompletionRequest",),
    "/v1/completions/render": ("CompletionRequest",),
    "/v1/messages/render": ("AnthropicMessagesRequest",),
    "/v1/messages/count_tokens": ("AnthropicCountTokensRequest",),
    "/v1/responses/render": ("ResponsesRequest",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    releases = sorted(parser.parse_args().directory.iterdir(), key=lambda path: _release(path.name))
    lines = [_HEAD.format(first=releases[0].name, last=releases[-1].name)]
    known = [(_release(path.name), _classes(path)) for path in releases]
    for route, names in _CLASSES.items():
        assert route in ROUTES
        every = [(release, _fields(found, names)) for release, found in known]
        rows = list(_rows([one for one in every if one[1]]))  # of those that have the route
        if rows:
            lines += [f'["{route}"]', *rows, ""]
    _TABLE.write_text("\n".join(lines))


def _rows(known: list[tuple[str, set[str]]]) -> Iterator[str]:
    """The lines of the fields that some releases have, and others have not."""
    everywhere = set.intersection(*(fields for _, fields in known))
    for name in sorted(set.union(*(fields for _, fields in known)) - everywhere):
        having = [name in fields for _, fields in known]
        first = having.index(True)
        rest = having[first:]
        end = first + rest.index(False) if False in rest else None
        assert not any(having[end:] if end else ()), f"{name} came back"
        bounds = [known[first][0]] if end is None else [known[first][0], known[end][0]]
        yield f"{name} = {str(bounds).replace(chr(39), chr(34))}"


def _classes(release: Path) -> dict[str, ast.ClassDef]:
    found = {}
    for file in sorted((release / "vllm/entrypoints").rglob("*protocol*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = node
    return found


def _fields(classes: Mapping[str, ast.ClassDef], names: tuple[str, ...]) -> set[str]:
    fields = set()
    for name in names:
        node = classes.get(name)
        if node is None:
            continue
        bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
        fields |= _fields(classes, bases)
        fields |= {
            line.target.id
            for line in node.body
            if isinstance(line, ast.AnnAssign)
            and isinstance(line.target, ast.Name)
            and not line.target.id.startswith("_")
            and "ClassVar" not in ast.unparse(line.annotation)
        }
    return fields


def _release(version: str) -> str:
    """The first two numbers, by which releases are told apart."""
    major, minor, *_ = version.split(".")
    return f"{major}.{minor}"


if __name__ == "__main__":
    main()
