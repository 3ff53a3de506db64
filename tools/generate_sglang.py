"""Compute the expected answers of SGLang with its own code.

Run it where SGLang is installed (a CPU is enough), from the repository's root, once for each model:

    python tools/generate_sglang.py MODEL
"""

from __future__ import annotations

import argparse
import base64
import io
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vector_files import VECTORS, runs, write_lines


def main() -> None:
    """Write the file of one model."""
    from sglang_cases import PLACEHOLDERS, cases
    from sglang_engine import VERSION, Engine
    from small_models import SMALL_MODELS, fingerprint, write_model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=PLACEHOLDERS)
    model = parser.parse_args().model
    files = SMALL_MODELS[model]()
    with tempfile.TemporaryDirectory() as directory:
        engine = Engine(write_model(files, Path(directory)))
        lines = [
            {
                "kind": "meta", "model": model, "backend": "sglang", "backend_version": VERSION,
                "transformers": version("transformers"), "tokenizers": version("tokenizers"),
                "fingerprint": fingerprint(files),
            }
        ]  # fmt: skip
        for case in cases(model):
            answer = engine.answer(case, [_picture(i) for i in case.get("images", ())])
            if "token_ids" in answer:
                answer = {"token_runs": runs(answer.pop("token_ids")), **answer}
            lines.append({**case, "expect": answer})
    write_lines(VECTORS / "sglang" / f"{model}.jsonl", lines)


def _picture(numbers: dict[str, Any]) -> str:
    from PIL import Image

    picture = Image.new("RGB", (numbers["width"], numbers["height"]), (9, 90, 200))
    exif = Image.Exif()
    if "exif_orientation" in numbers:
        exif[0x0112] = numbers["exif_orientation"]
    file = io.BytesIO()
    picture.save(file, "PNG", exif=exif)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


if __name__ == "__main__":
    main()
