"""Write what SGLang's code lists: the options of its server, its architectures, its chats.

    python tools/generate_sglang_lists.py

Runs where SGLang is installed, without a GPU. The modules in `mmroute/engines/sglang/` that read
the files say what each is used for.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

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
    from sglang.srt.models.registry import ModelRegistry
    from sglang.srt.parser.conversation import chat_templates
    from sglang.srt.parser.reasoning_parser import ReasoningParser
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    _write("launch_options", map(_option, parser._actions))
    _write("architectures", sorted(ModelRegistry.get_supported_archs()))
    _write("conversations", (_conversation(chat_templates[name]) for name in _GUESSED))
    parsers = sorted(ReasoningParser.DetectorMap.keys() - _WITHOUT_MARKS)
    _write("reasoning_marks", map(_marks, parsers), _OF_SERVER)


def _marks(name: str) -> dict[str, str]:
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    detector = ReasoningParser(name).detector
    begin = detector.think_start_token + detector.think_start_self_label
    return {"parser": name, "begin": begin, "end": detector.think_end_token}


def _write(name: str, entries: Iterable[Any], out: Path = OUT) -> None:
    read = json.dumps(f"SGLang {importlib.metadata.version('sglang')}")
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    text = f'{{"read": {read}, "entries": [\n{lines}\n]}}\n'
    (out / f"{name}.json").write_text(text, encoding="utf-8")


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
