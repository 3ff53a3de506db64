"""Compute block_hashes/lookahead.jsonl with vLLM's own block hasher, block pool and configuration.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_lookahead.py

Lines of kind "blocks" are requests of drawn token IDs, items, adapters and salts, with the hashes
of their blocks and what the pool's event says of them. Lines of kind "settings" are drafters, with
the number of lookahead tokens that vLLM's configuration gives.
"""

# vLLM is imported only where it is installed.

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine import ENGINE_VERSION, hashed, published, refuse_other_versions
from vector_files import VECTORS, requests_of, take_no_arguments, write_lines

OUTPUT = VECTORS / "block_hashes" / "lookahead.jsonl"
SEED = "0"
_SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
          "num_key_value_heads": 2}  # fmt: skip


def main() -> None:
    """Write the file."""
    take_no_arguments(__doc__)
    refuse_other_versions()
    os.environ["PYTHONHASHSEED"] = SEED
    os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0"
    lines = [
        {"kind": "meta", "backend": "vllm", "backend_version": ENGINE_VERSION, "seed": SEED},
        *(_ASKED[case.pop("kind")](case) for case in requests_of(OUTPUT)),
    ]
    write_lines(OUTPUT, lines)


def _blocks(case: dict[str, Any]) -> dict[str, Any]:
    size, ahead = case["block_size"], case["lookahead"]
    request = hashed(_core_request(case), case["algorithm"], size, ahead)
    told: dict[str, Any] = {"extra_keys": None, "lookahead_token_ids": None}
    if request.block_hashes:
        (event,) = published(request, size, num_hash_lookahead_tokens=ahead)
        told = {name: getattr(event, name) for name in told}
    hashes = [value.hex() for value in request.block_hashes]
    return {"kind": "blocks", **case, "expect": {"block_hashes": hashes, **told}}


def _core_request(case: dict[str, Any]) -> Any:
    """The request as the engine's core gets it: through its message encoding."""
    from vllm.lora.request import LoRARequest
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    lora = case["lora"]
    request = EngineCoreRequest(
        request_id="r",
        prompt_token_ids=case["token_ids"],
        mm_features=[
            MultiModalFeatureSpec(None, "image", name, PlaceholderRange(offset, length), name)
            for name, offset, length in case["items"]
        ] or None,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        arrival_time=0.0,
        lora_request=lora and LoRARequest(lora[0], 1, lora[1]),
        cache_salt=case["cache_salt"],
        data_parallel_rank=None,
    )  # fmt: skip
    return MsgpackDecoder(EngineCoreRequest).decode(MsgpackEncoder().encode(request))


def _settings(case: dict[str, Any]) -> dict[str, Any]:
    """The case with the number of lookahead tokens, or that the engine refuses it."""
    from vllm.config import ModelConfig, ParallelConfig, SpeculativeConfig, VllmConfig

    with tempfile.TemporaryDirectory() as directory:
        target = _model(directory, "served", {"model_type": "llama", **_SMALL,
                                              "architectures": ["LlamaForCausalLM"]})  # fmt: skip
        drafter = {}
        if case["drafter"] is not None:
            drafter["model"] = _model(directory, "drafter", case["drafter"])
        try:
            config = SpeculativeConfig(
                **drafter,
                **case["given"],
                target_model_config=ModelConfig(target, tokenizer_mode="slow"),
                target_parallel_config=ParallelConfig(),
            )
        except (TypeError, ValueError) as error:
            return {"kind": "settings", **case, "refused": type(error).__name__}
    whole = SimpleNamespace(
        speculative_config=config,
        num_speculative_tokens=config.num_speculative_tokens,
        cache_config=SimpleNamespace(enable_prefix_caching=case.get("prefix_caching", True)),
        kv_transfer_config=SimpleNamespace() if case.get("connector") else None,
    )
    whole.num_prefill_lookahead_tokens = VllmConfig.num_prefill_lookahead_tokens.fget(whole)
    return {"kind": "settings", **case, "expect": VllmConfig.num_hash_lookahead_tokens.fget(whole)}


def _model(directory: str, name: str, given: dict[str, Any]) -> str:
    """A directory with the defaults of a model type, and what is given of it."""
    from transformers import AutoConfig

    defaults = AutoConfig.for_model(given["model_type"]).to_dict()
    for key, value in given.items():
        defaults[key] = defaults.get(key) | value if isinstance(value, dict) else value
    path = Path(directory) / name
    path.mkdir()
    (path / "config.json").write_text(json.dumps(defaults))
    return str(path)


_ASKED = {"blocks": _blocks, "settings": _settings}


if __name__ == "__main__":
    main()
