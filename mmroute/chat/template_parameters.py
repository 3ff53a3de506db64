"""The parameters of the functions that render a chat, which are never variables of a template.

``tools/generate_lists.py`` writes them from the functions' signatures. Each chat renderer decides
which of them a request may set.
Sources: transformers ``tokenization_utils_base.py`` and ``tokenization_mistral_common.py``
(`apply_chat_template`), vLLM ``renderers/hf.py`` and ``renderers/mistral.py``
(`safe_apply_chat_template`).
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Final

_PARAMETERS: Final = json.loads(
    (resources.files("mmroute.chat") / "template_parameters.json").read_text(encoding="utf-8")
)
TRANSFORMERS: Final[frozenset[str]] = frozenset(_PARAMETERS["transformers"])
"""The parameters of transformers' tokenizers."""
TRANSFORMERS_MISTRAL: Final[frozenset[str]] = frozenset(_PARAMETERS["transformers_mistral"])
"""The parameters of transformers' tokenizer that is mistral-common."""
VLLM: Final[frozenset[str]] = frozenset(_PARAMETERS["vllm"])
"""The parameters of vLLM's function that calls transformers' tokenizers."""
VLLM_MISTRAL: Final[frozenset[str]] = frozenset(_PARAMETERS["vllm_mistral"])
"""The parameters of vLLM's function for models in Mistral's format."""
