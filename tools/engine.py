"""vLLM's own code, up to the point where a request enters its scheduler.

Nothing here decides what is right: renderer, tokenizer, media reading, processor, input checks
and block hashes are vLLM's.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vector_files import runs

ENGINE_VERSION = "0.33.0"
EMBEDDED = "pixtral-12b-2409"
BLOCK_SIZE = 16
ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
# The xxhash algorithms draw a seed at random unless the engine is given one.
HASH_SEED = "0"


def parser_of(doc: str | None, models: Iterable[str]) -> argparse.ArgumentParser:
    """A parser of the models to ask, all of them by default, and of what some of them need."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("models", metavar="MODEL", nargs="*", default=[*models])
    parser.add_argument(
        "--code",
        type=Path,
        default=Path(),
        help="directory of processor code: a folder for a model",
    )
    parser.add_argument("--params", type=Path, help=f"params.json of {EMBEDDED}")
    return parser


def refuse_other_versions() -> None:
    """Stop where another vLLM is installed than the one these vectors are of."""
    if version("vllm") != ENGINE_VERSION:
        sys.exit(f"these vectors are vLLM {ENGINE_VERSION}'s; installed is {version('vllm')}")


def meta(model: str, **fields: Any) -> dict[str, Any]:
    """The first line of a vector file."""
    packages = {name: version(name) for name in ("transformers", "tokenizers", "mistral-common")}
    return {"kind": "meta", "model": model, "backend": "vllm", "backend_version": ENGINE_VERSION,
            **packages, **fields}  # fmt: skip


def engines(
    arguments: argparse.Namespace,
    files_of: Callable[[str], dict[str, Any] | None] = lambda _: None,
) -> Iterator[tuple[str, Engine, str]]:
    """Each model that is asked, with its engine and the fingerprint of its files.

    Args:
        arguments: those of `parser_of`.
        files_of: the files of a small model, if they are others than its own.
    """
    refuse_other_versions()
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as directory:
            yield model, *build_engine(model, Path(directory), arguments, files_of(model))


def build_engine(
    model: str,
    directory: Path,
    arguments: argparse.Namespace,
    files: dict[str, Any] | None = None,
) -> tuple[Engine, str]:
    """An engine of a small model or the embedded one, and the fingerprint of its files.

    The directory is written by this function, and the engine goes on reading it.
    """
    of_files = prepare(model, directory, arguments, files)
    return Engine(directory, model_id=f"org/{model}"), of_files


def prepare(
    model: str,
    directory: Path,
    arguments: argparse.Namespace,
    files: dict[str, Any] | None = None,
) -> str:
    """Write a model's files with the code of its processor; the fingerprint without the code."""
    from small_models import CODE_FAMILIES

    if model == EMBEDDED and arguments.params is None:
        sys.exit(f"{model} has no params.json; give it with --params")
    of_files = write_files(model, directory, arguments.params, files)
    config = directory / "config.json"
    kind = json.loads(config.read_text()).get("model_type") if config.is_file() else None
    code = arguments.code / model
    if (kind == "phi3_v" or model in CODE_FAMILIES) and not code.is_dir():
        sys.exit(f"{model} has its processor's code elsewhere; give it with --code, in {code}")
    if kind == "phi3_v":
        add_phi3v_code(directory, code)
    elif code.is_dir():
        for file in code.glob("*.py"):
            (directory / file.name).write_text(file.read_text())
    return of_files


def write_files(
    model: str,
    directory: Path,
    params: Path | None = None,
    files: dict[str, Any] | None = None,
) -> str:
    """Write a small model or the embedded one; the fingerprint of its files.

    Args:
        model: the model's name.
        directory: where its files are written.
        params: the params.json of the embedded model; None if no engine reads it.
        files: the files of a small model, if they are others than its own.
    """
    from small_models import ALL_MODELS, fingerprint, write_model

    if model != EMBEDDED:
        files = files or ALL_MODELS[model]()
        write_model(files, directory)
        return fingerprint(files)
    import hashlib
    import shutil

    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    tekken = Path(MistralTokenizer._data_path()) / "tekken_240911.json"
    directory.mkdir(exist_ok=True)
    shutil.copy(tekken, directory / "tekken.json")
    if params is not None:
        shutil.copy(params, directory / "params.json")
    return hashlib.sha256(tekken.read_bytes()).hexdigest()


def add_phi3v_code(directory: Path, code: Path) -> None:
    """Phi-3-vision's processor is not part of transformers; point the files at its code."""
    for file in code.glob("*.py"):
        (directory / file.name).write_text(file.read_text())
    processors = {
        "AutoProcessor": "processing_phi3_v.Phi3VProcessor",
        "AutoImageProcessor": "processing_phi3_v.Phi3VImageProcessor",
    }
    configs = {"AutoConfig": "configuration_phi3_v.Phi3VConfig"}
    for name, auto_map in (("config.json", configs), ("preprocessor_config.json", processors)):
        content = json.loads((directory / name).read_text()) | {"auto_map": auto_map}
        (directory / name).write_text(json.dumps(content))
    own = {"processor_class": "Phi3VProcessor", "auto_map": processors}
    (directory / "processor_config.json").write_text(json.dumps(own))


class Engine:
    """One model, served up to the scheduler."""

    def __init__(self, directory: Path, *, model_id: str) -> None:
        from mmroute.lab.parity.oracles.vllm import VllmOracle
        from mmroute.model_directory import find_model

        self.directory = directory
        # vLLM reads the limits of PaddleOCR-VL by other names where it trusts code.
        self._engine = VllmOracle(
            find_model(str(directory)),
            trust_remote_code=any(directory.glob("*.py")),
        )
        processor = self._engine.renderer.mm_processor
        if processor is not None:
            # Fun-Audio-Chat reads these by its model string.
            for name in ("feature_extractor", "speech_tokenizer"):
                if hasattr(processor.info, name):
                    setattr(type(processor.info), name, getattr(processor.info, name))
            # The model string a server would have been started with.
            type(processor.info).model_id = property(lambda _: model_id)

    def answer(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """The prompt as vLLM stores it, or the beginning of its refusal."""
        return self._answer(case, _stored)

    def block_answer(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """The same, with image identities and block hashes."""
        return self._answer(case, lambda request, ranges: {
            **_stored(request, ranges), **_blocks(after_hop(request))
        })  # fmt: skip

    def prompt(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """The prompt of a chat as vLLM renders it, or the beginning of its refusal."""
        try:
            rendered, _ = self._engine.chat_prompt(case)
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {error}"[:160]}
        return {"ids": rendered["prompt_token_ids"]} if "prompt" not in rendered else {
            "prompt": rendered["prompt"]
        }  # fmt: skip

    def _answer(
        self, case: Mapping[str, Any], read: Callable[..., dict[str, Any]]
    ) -> dict[str, Any]:
        from mmroute.lab.parity.cases import UndecidedError

        try:
            return read(*self._engine.enter(case))
        except (ImportError, UndecidedError):  # of this environment, or of the oracle
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}".replace(str(self.directory), "MODEL")
            message = re.sub(r" at 0x[0-9A-Fa-f]+", "", message)
            return {"refused": message[:160]}


def _stored(request: Any, ranges: list[Any]) -> dict[str, Any]:
    ids = list(request.prompt_token_ids)
    others = {f.mm_position.offset: {"modality": f.modality}
              for f in request.mm_features or [] if f.modality in ("video", "audio")}  # fmt: skip
    return {"token_runs": runs(ids), "n_tokens": len(ids),
            "placeholders": [range_of(p) | others.get(p.offset, {}) for p in ranges]}  # fmt: skip


def after_hop(request: Any) -> Any:
    """The request as the engine's core gets it: through its message encoding."""
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    request = copy.copy(request)
    request.mm_features = [_without_data(f) for f in request.mm_features or []] or None
    return MsgpackDecoder(EngineCoreRequest).decode(MsgpackEncoder().encode(request))


def _without_data(feature: Any) -> Any:
    feature = copy.copy(feature)
    feature.data = None
    return feature


def hashed(core_request: Any, algorithm: str, block_size: int, ahead: int = 0) -> Any:
    """A request as the engine's core has it, with the hashes of its blocks."""
    import vllm.v1.core.kv_cache_utils as kv
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.request import Request

    function = get_hash_fn_by_name(algorithm)
    kv.init_none_hash(function)
    lookahead = (ahead,) if ahead else ()  # which earlier versions do not know
    hasher = kv.get_request_block_hasher(block_size, function, *lookahead)
    return Request.from_engine_core_request(core_request, hasher)


def published(request: Any, block_size: int, **options: Any) -> list[Any]:
    """The events of a block pool that gets all full blocks of a request."""
    from vllm.v1.core.block_pool import BlockPool

    count = len(request.block_hashes)
    pool = BlockPool(count + 2, True, block_size, enable_kv_cache_events=True, **options)
    pool.cache_full_blocks(request, pool.get_new_blocks(count), 0, count, block_size, 0)
    return [*pool.take_events()]


def _blocks(core_request: Any) -> dict[str, Any]:
    """Identities, extra keys, and the hashes of all full blocks; each covers those before it."""
    from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys

    hashes = {}
    for algorithm in ALGORITHMS:
        os.environ.pop("PYTHONHASHSEED", None)
        if algorithm.startswith("xxhash"):
            os.environ["PYTHONHASHSEED"] = HASH_SEED
        request = hashed(core_request, algorithm, BLOCK_SIZE)
        found = [value.hex() for value in request.block_hashes]
        hashes[algorithm] = {
            "n": len(found),
            "first": found[:4],
            "last": found[-1] if found else None,
        }
    count = len(request.block_hashes)
    keys, at = [], 0
    for i in range(count):
        key, at = generate_block_hash_extra_keys(request, i * BLOCK_SIZE, (i + 1) * BLOCK_SIZE, at)
        keys.append(key)
    event_keys = None
    if count:
        (event,) = published(request, BLOCK_SIZE)
        event_keys = event.extra_keys
    return {
        "mm_identifiers": [feature.identifier for feature in core_request.mm_features or []],
        "block_extra_keys": keys,
        "event_extra_keys": event_keys,
        "block_hashes": hashes,
    }


def range_of(placeholder: Any) -> dict[str, Any]:
    result = {"offset": int(placeholder.offset), "length": int(placeholder.length)}
    if placeholder.is_embed is None:
        return result
    return result | {"embed_runs": runs([int(v) for v in placeholder.is_embed.tolist()])}
