"""Ask vLLM which chat template it takes of a directory that has several.

Run it where vLLM is installed, from the repository's root:

    python tools/generate_templates.py [--code DIRECTORY] [MODEL ...]

MODEL is a small model of the tests; all of them by default. It is asked about the directories of
``tests/core/conformance/template_cases.py``, each with a chat of one text, without tools and with
one. ``vectors/templates`` beside it gets a file for each model: directory -> the text that vLLM
renders without tools, and with one. Null is a refusal; a directory that vLLM does not load has null
in place of both.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from engine import Engine, parser_of, prepare, refuse_other_versions
from vector_files import VECTORS

REQUEST: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": "Hello"}]}
TOOL: Final = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def main() -> None:
    """Write the files of all models that are asked."""
    from small_models import ALL_MODELS

    parser = parser_of(__doc__, ALL_MODELS)
    parser.add_argument("--out", type=Path, default=VECTORS / "templates")
    arguments = parser.parse_args()
    refuse_other_versions()
    logging.disable()
    arguments.out.mkdir(exist_ok=True)
    import vllm.renderers.online_renderer
    import vllm.v1.engine.input_processor  # noqa: F401 - children share what is imported here
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda call: call()  # it is a child of its own anyway
    for model in arguments.models:
        if os.fork() == 0:
            _write(model, ALL_MODELS[model](), arguments)
            os._exit(0)
        os.wait()


def _write(model: str, files: dict[str, Any], arguments: argparse.Namespace) -> None:
    from template_cases import EVERY, directories

    found = {}
    with tempfile.TemporaryDirectory() as root:
        for number, (name, content) in enumerate(directories(files, every=model in EVERY)):
            directory = Path(root) / str(number) / model
            prepare(model, directory, arguments, content)
            found[name] = _texts(directory)
    lines = [f"  {json.dumps(name)}: {json.dumps(texts)}" for name, texts in found.items()]
    (arguments.out / f"{model}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(model, len(found), sum(texts is None for texts in found.values()), file=sys.stderr)


def _texts(directory: Path) -> list[str | None] | None:
    from mmroute.lab.parity.oracles.common import OracleError

    try:
        engine = Engine(directory, model_id="org/model")
    except OracleError:
        return None
    with_tool = REQUEST | {"tools": [TOOL]}
    return [engine.prompt(request).get("prompt") for request in (REQUEST, with_tool)]


if __name__ == "__main__":
    main()
