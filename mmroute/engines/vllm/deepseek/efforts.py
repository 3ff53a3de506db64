"""The texts by which DeepSeek-V4 and V4.1 are told how much to think.

Source: vLLM ``tokenizers/deepseek_v4_encoding.py``, ``tokenizers/deepseek_v4.py``,
``tokenizers/deepseek_v41_encoding.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mmroute.errors import invalid, quoted

_HIGH: Final = """\
Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.

"""  # noqa: E501 - the model reads these lines as they are
_MAX: Final = """\
Reasoning Effort: Beyond maximum \u2014 exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.

"""  # noqa: E501 - the model reads these lines as they are
V4_EFFORTS: Final[Mapping[str, str]] = {
    "minimal": "", "low": "", "medium": "", "high": _HIGH, "xhigh": _HIGH, "max": _MAX,
}  # fmt: skip
"""Effort -> the text for V4."""
_V41_BUDGETS: Final = {"low": 50, "high": 75, "xhigh": 75, "max": 100}


def v41_effort(effort: object) -> str:
    """The text for V4.1."""
    budget = _V41_BUDGETS.get(effort) if isinstance(effort, str) else effort
    if type(budget) is not int or not 1 <= budget <= 100:  # noqa: PLR2004 - per cent
        raise invalid(
            f"reasoning_effort must be one of {', '.join(_V41_BUDGETS)}, or an integer from 1 to "
            f"100, found {quoted(effort)}"
        )
    return (
        f"Reasoning Effort: {budget} (range 1-100, the higher the value, the more thorough the "
        "reasoning)\n\n"
    )
