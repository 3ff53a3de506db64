"""Ask a running vLLM the requests of ``server/requests``, and keep its answers in ``server/``.

Run it where vLLM is installed (a CPU is enough), from the repository's root; VLLM is its command:

    python tools/generate_server.py VLLM MODEL [MODEL ...]
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from servers import ask, running
from vector_files import VECTORS, write_lines

_DRAWN: Final = re.compile(r"(?<=cmpl-|perm-|resp_)[0-9a-f]{16,}|(?<=\"created\": )\d{10}")

_ENVIRONMENT: Final = {
    "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip


def main() -> None:
    """Write one file for each model named."""
    from server_vectors import served_files
    from small_models import fingerprint, write_model

    command, *models = sys.argv[1:]
    for model in models:
        # The same path for everyone: image hashes cover it.
        root = Path(tempfile.gettempdir()) / "mmroute-server-vectors"
        files = served_files(model)
        directory = write_model(files, root / model)
        try:
            lines = _ask(command, model, directory, fingerprint(files))
        finally:
            shutil.rmtree(root)
        write_lines(VECTORS / "server" / f"{model}.jsonl", lines)


def _ask(command: str, model: str, directory: Path, of_files: str) -> list[dict[str, Any]]:
    from server_vectors import SERVED_NAMES, START_DATE, requests_to

    options = ("--served-model-name", *SERVED_NAMES, "--enable-tokenizer-info-endpoint")
    render = [command, "launch", "render", str(directory), *options]
    environment = {**_ENVIRONMENT, "VLLM_SYSTEM_START_DATE": START_DATE}
    with running(render, environment, Path.cwd()) as server:
        version = ask(server, "GET", "/version", None, {}).body["version"]
        meta = {"meta": {"model": model, "model_id": str(directory), "vllm": version,
                         "fingerprint": of_files}}  # fmt: skip
        lines: list[dict[str, Any]] = [meta]
        for case in requests_to(model):
            reply = ask(server, case.method, case.path, case.raw, case.headers)
            body = json.loads(_DRAWN.sub(_alike, json.dumps(reply.body)))
            lines.append({"name": case.name, "status": reply.status, "body": body})
        return lines


def _alike(drawn: re.Match[str]) -> str:
    """A random ID, or a time, that is the same for each run."""
    return "1" * len(drawn[0])


if __name__ == "__main__":
    main()
