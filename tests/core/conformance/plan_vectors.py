"""The largest items that vLLM plans its encoder cache with, under engine settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from paths import VECTORS

from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import ModelError, Reason
from mmroute.geometry.geometry import RefusedItems
from mmroute.model.resolve import resolve_model
from mmroute.reuse.fast_paths import FastPaths

PLANS: Final = VECTORS / "plans" / "small_models.jsonl"
# Kimi-K2.5's images, which vLLM takes by a name of their own.
_NAMES: Final = {"image": "vision_chunk"}
# What mmroute does not cover of these models, and refuses.
_REFUSED_HERE: Final = (Reason.UNSUPPORTED_ENGINE_SETTING, Reason.INVALID_ENGINE_SETTING)


def command_line(settings: Mapping[str, Any]) -> str:
    """Options of ``vllm serve`` for fields of its configuration."""
    words: list[str] = []
    for name, value in settings.items():
        words += [f"--{name.replace('_', '-')}", json.dumps(value)]
    return shlex.join(words)


def plan_problems(directory: Path, plans: Mapping[str, Any]) -> Iterator[str]:
    """How mmroute's plans differ from those of a line of the file, in words."""
    for line, expected in plans.items():
        if "refused" in expected:
            continue
        try:
            model = resolve_model(
                str(directory),
                fast_paths=FastPaths(encoder="tokenizers"),
                engine_settings=VllmSettings.from_args(line),
            )
        except ModelError as error:
            if error.reason not in _REFUSED_HERE:
                raise
            continue
        where, theirs = line or "defaults", expected["planned"]
        taken = {
            modality.value: rules
            for modality, rules in model.media.items()
            if rules.max_items and not isinstance(rules.geometry.grid, RefusedItems)
        }
        seen = set()
        for modality, rules in taken.items():
            name = modality if modality in theirs else _NAMES.get(modality, modality)
            seen.add(name)
            if name in theirs and rules.max_embeds != theirs[name]:
                yield f"{where}: {modality} {rules.max_embeds}, the engine {theirs[name]}"
        cache = expected["encoder_cache"]
        # The engine plans with items of modalities that are refused here, too.
        if model.encoder_cache > cache or (seen == {*theirs} and model.encoder_cache < cache):
            yield f"{where}: encoder cache {model.encoder_cache}, the engine's {cache}"
