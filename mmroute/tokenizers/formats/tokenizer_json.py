"""``tokenizer.json`` through the `tokenizers` library, put together as the engine does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import tokenizers

from mmroute.errors import ModelError, Reason, malformed
from mmroute.model_directory import JsonValue, ModelFiles
from mmroute.reuse.fast_paths import FastPaths
from mmroute.tokenizers.encoder_choice import choose_encoder, load_ahead
from mmroute.tokenizers.engine_classes import NOTHING_ADDED, AddedTokens, engine_class
from mmroute.tokenizers.formats.hf_tokenizer import HfTokenizer, joins_pieces
from mmroute.tokenizers.formats.special_tokens import SpecialTokens, read_special_tokens
from mmroute.tokenizers.pipelines import PIPELINES, Pipeline

_FORMAT: Final = "tokenizer.json"
_CONFIG: Final = "tokenizer_config.json"
_OTHER_VOCABULARIES: Final = (
    "tokenizer.model", "tokenizer.model.v*", "tiktoken.model", "*.tiktoken", "vocab.json", "*.gguf",
)  # fmt: skip


def load_hf_model(
    files: ModelFiles,
    pipelines: Mapping[str, str],
    fast_paths: FastPaths,
    adds: AddedTokens = NOTHING_ADDED,
) -> HfTokenizer:
    """Load the tokenizer of a model as the engine does."""
    _check_not_another_format(files)
    return build(files, PIPELINES.get(built_class(files, pipelines)), fast_paths, adds)


def _check_not_another_format(files: ModelFiles) -> None:
    """Refuse a model without a tokenizer.json: the engine converts it by rules not checked."""
    others = [] if files.has(_FORMAT) else files.names(_OTHER_VOCABULARIES)
    if others:
        raise ModelError(
            Reason.TOKENIZER_UNVERIFIED,
            f"{files.name} has no tokenizer.json, only {', '.join(others)}. The engine converts "
            "that file, and its IDs then depend on the engine's version. Save the converted "
            "tokenizer (`AutoTokenizer.from_pretrained(...).save_pretrained(...)`) and serve that "
            "directory; or encode with `mmroute.load_tokenizer`, which does not promise the "
            "engine's IDs.",
        )


def built_class(files: ModelFiles, pipelines: Mapping[str, str]) -> str:
    """The class whose pipeline the engine runs, or `FILE`; `pipelines` is as in `load_hf_model`."""
    config, model = files.object(_CONFIG), files.object("config.json")
    for field in ("split_special_tokens", "fix_mistral_regex"):
        if config.get(field):
            raise _unverified(files, f"{field} is set, which was not checked")
    name = _declared_class(files)
    if pipelines:
        chosen = pipelines.get((name or "*").removesuffix("Fast"), pipelines.get("*"))
        expected = f"this family was checked only with {', '.join(sorted(pipelines))}"
    else:
        model_type = model.get("model_type")
        chosen = engine_class(model_type if isinstance(model_type, str) else None, name)
        expected = "how the engine builds that class was not checked"
        remote = config.get("auto_map")
        if isinstance(remote, list) or (isinstance(remote, dict) and "AutoTokenizer" in remote):
            raise _unverified(files, "auto_map names a tokenizer in the model's own code")
    if chosen is None:
        raise _unverified(files, f"tokenizer_class is {name!r}, and {expected}")
    return chosen


def _declared_class(files: ModelFiles) -> str | None:
    configured, model = files.object(_CONFIG), files.object("config.json")
    declared = configured.get("tokenizer_class") or model.get("tokenizer_class")
    return str(declared) if declared else None


def _unverified(files: ModelFiles, why: str) -> ModelError:
    return ModelError(
        Reason.TOKENIZER_UNVERIFIED,
        f"{files.path(_CONFIG)}: {why}. The engine builds the tokenizer from this field, so it may "
        "have other IDs than tokenizer.json.",
    )


def backend_of(files: ModelFiles, declared: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """The library's tokenizer for the content of ``tokenizer.json``."""
    try:
        return tokenizers.Tokenizer.from_str(msgspec.json.encode(declared).decode())
    except Exception as error:  # `tokenizers` raises bare Exception
        raise malformed(
            f"{files.path(_FORMAT)} is not a tokenizer that `tokenizers` "
            f"{tokenizers.__version__} can load: {error}"
        ) from error


def build(
    files: ModelFiles, pipeline: Pipeline | None, fast_paths: FastPaths, adds: AddedTokens
) -> HfTokenizer:
    """The tokenizer of a class with this pipeline; None for the file as it is written."""
    special = read_special_tokens(files, None if pipeline is None else pipeline.defaults)
    declared = _declared(files, pipeline, special)
    ahead = load_ahead(declared, special.foreseen, fast_paths)
    backend = backend_of(files, declared)
    special.add_to(backend)
    if pipeline is not None and pipeline.resets_flags:
        backend.add_tokens([tokenizers.AddedToken(t, special=True) for t in special.texts])
    special.check_ids(backend, files)
    backend.add_tokens(list(adds.ordinary))
    backend.add_special_tokens(list(adds.special))
    bos = special.names.get("bos_token")
    return HfTokenizer(
        backend=backend,
        encoder=choose_encoder(backend, declared, fast_paths, ahead),
        bos_token_id=backend.token_to_id(bos) if bos is not None else None,
        named_tokens=special.texts,
        template_tokens=special.names,
        joins_pieces=joins_pieces(declared.get("decoder")),
        vocabulary=declared["model"].get("vocab"),
    )


def _declared(
    files: ModelFiles, pipeline: Pipeline | None, special: SpecialTokens
) -> dict[str, Any]:
    """The JSON from which the tokenizer is built; the configuration's tokens are not yet in it."""
    declared = dict(files.object(_FORMAT)) or files.json(_FORMAT)
    if not isinstance(declared, dict):
        raise malformed(f"{files.path(_FORMAT)} must hold a JSON object.")
    declared |= {"truncation": None, "padding": None}
    if pipeline is None:
        return declared
    config = files.object(_CONFIG)
    for field in pipeline.not_null:
        if config.get(field, True) is None:
            raise _unverified(files, f"{field} is null, which the engine's class does not accept")
    declared |= pipeline.parts(config)
    declared["model"] = _model(files, declared.get("model"), pipeline, special)
    declared["added_tokens"] = []
    if not pipeline.keeps_post_processor:
        declared["post_processor"] = None
    return declared


def _model(
    files: ModelFiles, model: JsonValue, pipeline: Pipeline, special: SpecialTokens
) -> dict[str, JsonValue]:
    """The BPE model: vocabulary and merges from the file, all else from the class."""
    if not isinstance(model, dict):
        raise malformed(f"{files.path(_FORMAT)} has no model.")
    if model.get("type", "BPE") != "BPE":
        kind = model["type"]
        raise _unverified(files, f"its class builds a BPE model, and tokenizer.json holds {kind!r}")
    unknown = None
    if pipeline.unknown is not None:
        unknown = special.names.get(pipeline.unknown, "None")  # the class writes a null as "None"
    return {
        "type": "BPE",
        "unk_token": unknown,
        **pipeline.model,
        "vocab": model.get("vocab"),
        "merges": model.get("merges"),
    }
