"""Write the lists that the code of vLLM and transformers gives: options, classes, parameters.

    python tools/generate_lists.py           write them
    python tools/generate_lists.py --check   exit with 1 if they are not what is installed

Runs in an environment with vLLM, without a GPU under ``VLLM_TARGET_DEVICE=cpu``. Each file says in
``read`` which versions it was read from. The module beside the file says what a list is used for.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

MMROUTE: Final = Path(__file__).parents[1] / "mmroute"


def serve_options() -> dict[str, Any]:
    """The options of ``vllm serve``, by how many values each takes."""
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    kinds: dict[str, set[str]] = {"flags": set(), "values": set(), "lists": set()}
    short: dict[str, str] = {}
    for action in make_arg_parser(FlexibleArgumentParser())._actions:
        names = [name[2:] for name in action.option_strings if name.startswith("--")]
        if not names or isinstance(action, argparse._HelpAction):
            continue
        if action.nargs == 0:
            kinds["flags"].add(names[0])  # the others are its opposites
        else:
            kinds["lists" if action.nargs in ("+", "*") else "values"].update(names)
        short |= {name: names[0] for name in action.option_strings if name[:2] != "--"}
    return {**{kind: sorted(found) for kind, found in kinds.items()}, "short": short}


def tokenizer_classes() -> dict[str, Any]:
    """The tokenizer class of each model type, and the classes that there are."""
    import transformers
    from transformers.convert_slow_tokenizer import SLOW_TO_FAST_CONVERTERS
    from transformers.models.auto import tokenization_auto as auto
    from vllm.tokenizers import registry

    # Old names of classes are found by name only: the converters list them.
    named = {*dir(transformers), *SLOW_TO_FAST_CONVERTERS, *auto.TOKENIZER_MAPPING_NAMES.values()}
    classes = {
        name
        for name in named
        if name
        and name.endswith(("Tokenizer", "MistralCommonBackend"))
        and name != "PreTrainedTokenizer"  # the general class by its old name
        and hasattr(transformers, name)
    }
    return {
        "kept_by_vllm": sorted(registry._MODEL_TYPES_WITH_INCORRECT_TOKENIZER_CLASS),
        "incorrect": sorted(auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS),
        "registered": {
            model_type: name.removesuffix("Fast")
            for model_type, name in sorted(auto.TOKENIZER_MAPPING_NAMES.items())
            if name
        },
        "classes": sorted(classes),
    }


def template_parameters() -> dict[str, Any]:
    """The parameters of the functions that render a chat."""
    from transformers import PreTrainedTokenizerBase
    from transformers.tokenization_mistral_common import MistralCommonBackend
    from vllm.renderers import hf, mistral

    return {
        "transformers": _parameters(PreTrainedTokenizerBase.apply_chat_template),
        "transformers_mistral": _parameters(MistralCommonBackend.apply_chat_template),
        "vllm": _parameters(hf.safe_apply_chat_template),
        "vllm_mistral": _parameters(mistral.safe_apply_chat_template),
    }


def multimodal_architectures() -> dict[str, Any]:
    """The multimodal architectures, and those whose layers have several kinds of state.

    A class that needs a package which is not installed is not looked into. Elsewhere than in its
    own table, the class says whether a model takes items. Drafters are no models of requests, and
    no configuration names the classes of the transformers backend.
    """
    from vllm.model_executor.models import registry
    from vllm.model_executor.models.interfaces import supports_multimodal

    tables = (
        registry._TEXT_GENERATION_MODELS, registry._TRANSFORMERS_SUPPORTED_MODELS,
        registry._EMBEDDING_MODELS, registry._LATE_INTERACTION_MODELS, registry._REWARD_MODELS,
        registry._TOKEN_CLASSIFICATION_MODELS, registry._SEQUENCE_CLASSIFICATION_MODELS,
        registry._MULTIMODAL_MODELS,  # last: the class of a model that also embeds is this one's
    )  # fmt: skip
    named = {name: found for table in tables for name, found in table.items()}
    multimodal, hybrid, not_imported = {*registry._MULTIMODAL_MODELS}, set(), set()
    modalities = {}
    for name, (module, class_name) in named.items():
        path = module if module.startswith("vllm.") else f"vllm.model_executor.models.{module}"
        try:
            model = getattr(importlib.import_module(path), class_name)
        except ImportError:
            not_imported.add(name)
            continue
        if supports_multimodal(model):
            multimodal.add(name)
        if name in multimodal and getattr(model, "is_hybrid", False):
            hybrid.add(name)
        if name in multimodal and (taken := _modalities(model)):
            modalities[name] = " ".join(sorted(taken))
    return {
        "multimodal": sorted(multimodal),
        "hybrid": sorted(hybrid),
        "not_imported": sorted(not_imported),
        "modalities": dict(sorted(modalities.items())),
    }


def _modalities(model: type) -> set[str]:
    """The modalities that the engine takes of some model of a class, as far as its code names them.

    The conditions are not read.
    """
    info = getattr(getattr(model, "_processor_factory", None), "info", None)
    named: set[str] = set()
    for one in getattr(info, "__mro__", ()):
        if "get_supported_mm_limits" in vars(one):
            source = inspect.getsource(one.get_supported_mm_limits)
            named.update(re.findall(r'"(image|video|audio|vision_chunk)"', source))
            if "super()" not in source:
                break
    if "vision_chunk" in named:  # under which images and videos are counted together
        return named - {"vision_chunk"} | {"image", "video"}
    return named


def processor_classes() -> dict[str, Any]:
    """The classes of processors that keep a chat template, and those of model types.

    A class keeps none if its constructor takes none: transformers makes it without.
    """
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import processing_auto as auto
    from vllm.transformers_utils import config, processors

    for model_type in config._CONFIG_REGISTRY:  # as it does before it loads a model
        config._register_config_class(model_type, config._CONFIG_REGISTRY[model_type])
    by_type = {}
    for model_type in CONFIG_MAPPING:
        found = auto.PROCESSOR_MAPPING.get(CONFIG_MAPPING[model_type], None)
        if found is not None and _keeps_template(found):
            by_type[model_type] = found.__name__
    names = {one for listed in auto.PROCESSOR_MAPPING_NAMES.values() for one in _names(listed)}
    return {
        "by_type": dict(sorted(by_type.items())),
        "named": sorted(n for n in names if _keeps_template(auto.processor_class_from_name(n))),
        "own": sorted(
            n for n in processors.__all__ if _keeps_template(getattr(processors, n, None))
        ),
    }


def _names(listed: Any) -> list[str]:
    return [listed] if isinstance(listed, str) else [*(listed or ())]


def _keeps_template(processor: Any) -> bool:
    code = getattr(getattr(processor, "__init__", None), "__code__", None)
    return code is not None and "chat_template" in code.co_varnames[: code.co_argcount]


def _parameters(function: Callable[..., Any]) -> list[str]:
    named = inspect.signature(function).parameters.values()
    return sorted(one.name for one in named if one.kind is not one.VAR_KEYWORD)


FILES: Final[Mapping[str, tuple[Callable[[], dict[str, Any]], tuple[str, ...]]]] = {
    "engines/vllm/architectures.json": (multimodal_architectures, ("vLLM",)),
    "engines/vllm/processor_classes.json": (processor_classes, ("vLLM", "transformers")),
    "engines/vllm/serve_options.json": (serve_options, ("vLLM",)),
    "tokenizers/engine_classes.json": (tokenizer_classes, ("vLLM", "transformers")),
    "chat/template_parameters.json": (template_parameters, ("vLLM", "transformers")),
}
"""File -> what gives its content, and the packages that content is read from."""


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    check, other = parser.parse_args().check, []
    for name, (content, packages) in FILES.items():
        read = {package: importlib.metadata.version(package) for package in packages}
        text = json.dumps({"read": read, **content()}, indent=1) + "\n"
        path = MMROUTE / name
        if check and path.read_text(encoding="utf-8") != text:
            other.append(name)
        elif not check:
            path.write_text(text, encoding="utf-8")
    if other:
        sys.exit(f"not as installed: {', '.join(other)}; run python tools/generate_lists.py")


if __name__ == "__main__":
    main()
