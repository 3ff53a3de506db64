"""Write the options of SGLang's server, as its own parser has them.

    python tools/generate_sglang_options.py

Runs where SGLang is installed, without a GPU. `mmroute/engines/sglang/options.py` reads the file.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from pathlib import Path
from typing import Any, Final

OUT: Final = Path(__file__).parents[1] / "mmroute/engines/sglang/launch_options.json"
_NUMBERS: Final = {int: "int", float: "float"}


def main() -> None:
    """Write a line for each option."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    options = [json.dumps(_option(action)) for action in parser._actions]
    read = json.dumps(f"SGLang {importlib.metadata.version('sglang')}")
    lines = ",\n".join(options)
    OUT.write_text(f'{{"read": {read}, "options": [\n{lines}\n]}}\n', encoding="utf-8")


def _option(action: argparse.Action) -> dict[str, Any]:
    told: dict[str, Any] = {"names": action.option_strings}
    if action.nargs is not None:
        told["nargs"] = action.nargs
    if action.type in _NUMBERS:
        told["type"] = _NUMBERS[action.type]
    if action.choices:
        told["choices"] = list(action.choices)
    return told


if __name__ == "__main__":
    main()
