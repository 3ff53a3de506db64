"""Whether vLLM finds a processor for a model whose chat template counts.

Source: vLLM ``renderers/hf.py`` (`_try_get_processor_chat_template`) and
``transformers_utils/processor.py`` (`get_processor`), transformers ``processing_utils.py``
(`from_args_and_dict`) and ``models/auto/processing_auto.py`` (`AutoProcessor`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from functools import cache
from importlib import resources
from typing import Any, Final

from mmroute.model_directory import PARTS, FieldRef, JsonValue, ModelFiles

_PREPROCESSORS: Final = (
    ("image_processor", "preprocessor_config.json"),
    ("video_processor", "video_preprocessor_config.json"),
)


def keeps_template(
    files: ModelFiles, of_family: Collection[str] = (), needs: Iterable[str] = ()
) -> bool | None:
    """Whether the engine finds a processor that has the files' template; None if it may fail."""
    classes = _classes()
    of_type = classes["by_type"].get(files.object("config.json").get("model_type"))
    name, is_code = named_class(files)
    if name is None and not is_code:
        name = of_type
    if is_code and name not in classes["named"]:
        return True  # the model's own class, which was read with the family
    if name is not None and name in (of_type, *of_family):
        fields = (files.effective(FieldRef.parse(place)) for place in needs)
        return all(files.lookup(field)[0] for field in fields)
    is_known = name in classes["named"] or name in classes["own"]
    return None if is_known and any(map(files.has_part, PARTS)) else False


def named_class(files: ModelFiles) -> tuple[JsonValue, bool]:
    """The class that the files name, and whether the last file read names code of the model."""
    places = [FieldRef("processor_config.json", ())]
    places += [FieldRef(part, ()) for part, file in _PREPROCESSORS if files.has(file)][:1]
    places += [FieldRef("tokenizer_config.json", ()), FieldRef("config.json", ())]
    is_code = False
    for place in places:
        found = files.effective(place)
        content = files.lookup(found)[1] if found.path else files.object(found.file)
        of_file: Any = content if isinstance(content, dict) else {}
        is_code = is_code or "AutoProcessor" in (of_file.get("auto_map") or {})
        if (name := of_file.get("processor_class")) is not None:
            return name, is_code
    return None, is_code


@cache
def _classes() -> dict[str, Any]:
    """Classes whose constructor takes a template, by `tools/generate_lists.py`."""
    file = resources.files("mmroute.engines.vllm") / "processor_classes.json"
    classes: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return classes
