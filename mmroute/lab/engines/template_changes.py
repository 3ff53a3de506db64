"""Options of chat templates that all engines have, and `validate` tries where answers differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mmroute.lab.parity.causes import Change
from mmroute.model.resolved import ResolvedModel

_SWITCHES: Final = ({"enable_thinking": False}, {"enable_thinking": True},
                    {"thinking": False}, {"thinking": True})  # fmt: skip


def template_changes(model: ResolvedModel, kwargs: Mapping[str, Any]) -> Iterator[Change]:
    """Other templates in the model's directory, and switches beside the arguments so far."""
    if Path(model.name).is_dir():
        for template in sorted(Path(model.name).glob("*.jinja")):
            yield Change("--chat-template", template, {"chat_template": str(template)})
    for switch in _SWITCHES:
        yield merged("--default-chat-template-kwargs", "chat_template_kwargs", kwargs, switch)


def merged(option: str, field: str, known: Mapping[Any, Any], changed: Mapping[Any, Any]) -> Change:
    """An option whose value is an object, with the keys that the settings already have."""
    value = {**known, **changed}
    return Change(option, json.dumps(value), {field: value})
