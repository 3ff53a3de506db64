"""Write what SGLang's code lists: the options of its server, its architectures, its chats.

    python tools/generate_sglang_lists.py

Runs where a version of SGLang is installed, without a GPU, for each version in its turn: what the
version has no more gets `until`, the version before, and what is new in it `since`. The modules in
`mmroute/engines/sglang/` that read the files say what each is used for.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

_ROOT: Final = Path(__file__).parents[1] / "mmroute"
OUT: Final = _ROOT / "engines/sglang"
_OF_SERVER: Final = _ROOT / "server/engines/sglang"
_NUMBERS: Final = {"int", "float", "human_readable_int"}
_OF_CONVERSATION: Final = (
    "name", "system_template", "system_message", "roles", "sep", "sep2", "stop_str", "image_token",
    "image_token_at_prefix",
)  # fmt: skip
# Those that SGLang takes by the path or the type of a model.
_GUESSED: Final = (
    "chatml-llava", "deepseek-ocr", "deepseek-vl2", "internvl-2-5", "janus-pro", "minicpmo",
    "minicpmv", "moss-vl", "paddle-ocr", "phi-4-mm", "points-v15-chat", "unlimited-ocr",
    "vicuna_v1.1",
)  # fmt: skip

_WITHOUT_MARKS: Final = {"response_template"}  # thoughts are a field of their own there


def main() -> None:
    """Write each file with a line for each entry."""
    import sglang
    from sglang.srt.parser.conversation import chat_templates
    from sglang.srt.parser.reasoning_parser import ReasoningParser
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    models = Path(sglang.__file__).parent / "srt/models"
    _write("launch_options", map(_option, parser._actions))
    _write("architectures", ({"name": name} for name in sorted(set(architectures(models)))))
    _write("conversations", (_conversation(chat_templates[name]) for name in _GUESSED))
    parsers = sorted(ReasoningParser.DetectorMap.keys() - _WITHOUT_MARKS)
    _write("reasoning_parsers", map(_parser, parsers), _OF_SERVER)


def _parser(name: str) -> dict[str, str | None]:
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    detector = ReasoningParser(name).detector
    begin = detector.think_start_token + detector.think_start_self_label
    default = detector.reasoning_default
    return {"parser": name, "begin": begin, "end": detector.think_end_token, "default": default}


def _write(name: str, entries: Iterable[Any], out: Path = OUT) -> None:
    path, version = out / f"{name}.json", importlib.metadata.version("sglang")
    before = json.loads(path.read_text(encoding="utf-8"))
    read = [old for old in before["read"] if old != version]
    if read and Version(read[-1]) > Version(version):
        sys.exit(f"{path} was read of {read[-1]}, and versions are read in their order")
    merged = _merged(before["entries"], list(entries), version, read[-1] if read else "")
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in merged)
    text = f'{{"read": {json.dumps([*read, version])}, "entries": [\n{lines}\n]}}\n'
    path.write_text(text, encoding="utf-8")


def _merged(
    old: list[dict[str, Any]], found: list[dict[str, Any]], version: str, last: str
) -> Iterator[dict[str, Any]]:
    """The entries of a version, and behind them those of the versions before it alone."""
    earlier = [entry for entry in old if last and entry.get("since") != version]
    since = {_bare(e): e.get("since") for e in earlier if e.get("until") in (None, last)}
    for entry in found:
        start = since.get(_bare(entry)) if _bare(entry) in since or not last else version
        yield {**entry, "since": start} if start else entry
    now = set(map(_bare, found))
    for entry in earlier:
        if entry.get("until") not in (None, last):
            yield entry
        elif _bare(entry) not in now:
            yield {**entry, "until": last}


def _bare(entry: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in entry.items() if k not in ("since", "until")})


def architectures(models: Path) -> Iterator[str]:
    """The classes that the modules of models name, also of those whose kernels are not here."""
    for path in sorted(models.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EntryClass":
                yield from (n.id for n in ast.walk(node.value) if isinstance(n, ast.Name))


def _option(action: argparse.Action) -> dict[str, Any]:
    told: dict[str, Any] = {"names": action.option_strings}
    if action.nargs is not None:
        told["nargs"] = action.nargs
    if (kind := getattr(action.type, "__name__", "")) in _NUMBERS:
        told["type"] = kind
    if action.choices:
        told["choices"] = list(action.choices)
    return told


def _conversation(template: Any) -> dict[str, Any]:
    told = {name: getattr(template, name) for name in _OF_CONVERSATION}
    stop = told.pop("stop_str") or []
    stops = [stop] if isinstance(stop, str) else list(stop)
    return {**told, "style": template.sep_style.name.lower(), "stops": stops}


if __name__ == "__main__":
    main()
