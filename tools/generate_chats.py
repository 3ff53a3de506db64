"""Compute what vLLM's renderers in code make of the requests of `chat_cases`.

Run it from the repository's root in an environment of vLLM 0.33.0:

    python tools/generate_chats.py [MODEL ...]
"""

from __future__ import annotations

from engine import engines, meta, parser_of
from vector_files import VECTORS, write_lines


def main() -> None:
    """Write one file for each model named, or for all."""
    from chat_cases import MODELS, REQUESTS

    for model, engine, fingerprint in engines(parser_of(__doc__, MODELS).parse_args()):
        lines = [
            {"id": name, "expect": engine.prompt(request)} for name, request in REQUESTS.items()
        ]
        first = meta(model, fingerprint=fingerprint)
        write_lines(VECTORS / "chats" / f"{model}.jsonl", [first, *lines])


if __name__ == "__main__":
    main()
