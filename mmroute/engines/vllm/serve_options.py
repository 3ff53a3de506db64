"""The options of ``vllm serve``, by the number of values that each takes.

``tools/generate_lists.py`` writes them from the engine's own parser.
Source: vLLM ``entrypoints/common/cli_args.py`` and ``engine/arg_utils.py``.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Final

_OPTIONS: Final = json.loads(
    (resources.files("mmroute.engines.vllm") / "serve_options.json").read_text(encoding="utf-8")
)
FLAGS: Final[frozenset[str]] = frozenset(_OPTIONS["flags"])
"""Without a value. Each has its opposite: ``--no-x``; or ``--disable-x`` of ``--enable-x``."""
VALUES: Final[frozenset[str]] = frozenset(_OPTIONS["values"])
"""With one value."""
LISTS: Final[frozenset[str]] = frozenset(_OPTIONS["lists"])
"""With one value or several."""
# ``-O3`` is rewritten before the parser sees it.
SHORT: Final[dict[str, str]] = {**_OPTIONS["short"], "-O": "optimization-level"}
"""Short name -> long name."""
OWN_TOKENIZER_MODES: Final = (
    "deepseek_v32", "deepseek_v4", "deepseek_v41", "inkling", "kimi_k3", "mistral",
)  # fmt: skip
"""The values of ``--tokenizer-mode`` that name a tokenizer or a chat renderer of its own."""
