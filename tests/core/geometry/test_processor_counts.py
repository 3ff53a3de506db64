"""The second oracle, for families whose processor needs torch: its counts were recorded.

``tools/generate_counts.py`` asks each processor of transformers for random sizes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmroute import ImageSize, Normalizer
from mmroute.errors import InexactError
from mmroute.requests.items import Modality

LINES = Path(__file__).with_name("processor_counts.jsonl").read_text().splitlines()
META, *MODELS = map(json.loads, LINES)


@pytest.mark.parametrize("recorded", MODELS, ids=lambda recorded: recorded["model"])
def test_features_of_random_sizes(
    recorded: dict[str, Any], normalizer: Callable[[str], Normalizer]
) -> None:
    model, counts = normalizer(recorded["model"]).model, recorded["counts"]
    assert META["transformers"] in model.family.checked.get("transformers", ())
    geometry: Any = model.media[Modality.IMAGE].geometry
    wrong = []
    for width, height, expected in counts:
        try:
            (replacement,) = geometry.replacements([ImageSize(width, height)], model.context)
            found = replacement.num_embeds
        except InexactError:
            found = None
        if found != expected:
            wrong.append((width, height, expected, found))
    assert len(counts) > 100
    assert not wrong


def test_the_counts_differ() -> None:
    """Sizes that all have one count would prove little."""
    assert len(MODELS) > 15
    for recorded in MODELS:
        found = {count for _, _, count in recorded["counts"]}
        assert (len(found) > 2) == (recorded["model"] != "small-gemma-3n")
