"""The ingress tokenizer: mmroute's answer where it is exact, and Ray's own otherwise."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from comparison import expanded, read_vectors, request_of, with_files
from image_vectors import IMAGE_VECTORS, file_urls

from mmroute import ModelError
from mmroute.engines.vllm.settings import as_vllm
from mmroute.server.loading import ModelSource
from mmroute.server.ray import IngressTokenizer
from mmroute.server.ray.prompts import PromptIds
from mmroute.server.ray.tokenizer import source_of

MODEL = "small-qwen2.5-vl"
PATH = next(path for path in IMAGE_VECTORS if path.stem == MODEL)
HI = [{"role": "user", "content": "Hi"}]
LINK = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


class Own:
    """In the place of Ray's own tokenizer."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def tokenize(self, payload: dict[str, Any]) -> list[int] | None:
        self.asked.append(payload)
        return None if isinstance(payload.get("prompt"), list) else [7]


def tokenizer(own: Any, model: Path) -> tuple[IngressTokenizer, list[dict[str, str]]]:
    """A tokenizer, and what it counts."""
    made = IngressTokenizer(ModelSource(str(model), ("m",), model_id=f"org/{MODEL}"), own)
    counted: list[dict[str, str]] = []
    made._answers = SimpleNamespace(inc=lambda *, tags: counted.append(tags))
    return made, counted


def tokenized(made: Any, payload: dict[str, Any]) -> Any:
    return asyncio.run(made.tokenize(payload))


def test_the_engines_own_token_ids(small_model: Callable[[str], Path]) -> None:
    own = Own()
    made, counted = tokenizer(own, small_model(MODEL))
    _, cases = read_vectors(PATH)
    compared = 0
    for case in cases:
        expect, request = case["expect"], with_files(request_of(case), file_urls())
        if "refused" in expect or request.keys() > {"id", "messages"}:
            continue
        ids = tokenized(made, {"model": "m", "messages": request["messages"]})
        assert ids == expanded(expect["token_runs"])
        assert ids.forwardable == (not expect["placeholders"])
        assert ids.routing.token_ids.tolist() == ids
        compared += 1
    assert compared > 50
    assert not own.asked
    assert counted == [{"tokenized_by": "mmroute", "reason": ""}] * compared


@pytest.mark.parametrize(
    ("payload", "reason", "forwardable"),
    [
        ({"messages": [{"role": "user", "content": [LINK]}]}, "image_size_unknown", False),
        ({"prompt": "Hi", "model": "m:lora"}, "NotFoundError", True),
        ({"messages": HI, "chat_template": "x"}, "invalid_request", True),
        ({"messages": 7}, "invalid_request", True),
        ({"prompt": "Hi", "suffix": "x"}, "unsupported_field", True),
    ],
)  # fmt: skip
def test_what_is_not_exact_is_left_to_ray_and_counted(
    payload: dict[str, Any], reason: str, forwardable: bool, small_model: Callable[[str], Path]
) -> None:
    own = Own()
    made, counted = tokenizer(own, small_model(MODEL))
    ids = tokenized(made, payload)
    assert (ids, ids.forwardable, ids.routing) == ([7], forwardable, None)
    assert own.asked == [payload]
    assert counted == [{"tokenized_by": "fallback", "reason": reason}]


def test_several_prompts_are_routed_without_token_ids(small_model: Callable[[str], Path]) -> None:
    made, _ = tokenizer(Own(), small_model(MODEL))
    assert tokenized(made, {"prompt": ["a", "b"]}) is None


def config(runtime_env: Any = None, frontend: Any = None, **engine: Any) -> Any:
    """What is read of an LLMConfig."""
    engine_config = SimpleNamespace(
        actual_hf_model_id="org/model",
        engine_kwargs=engine,
        frontend_kwargs=frontend or {},
        runtime_env=runtime_env,
    )
    return SimpleNamespace(model_id="served", get_engine_config=lambda: engine_config)


def test_the_engines_options_are_those_of_the_llm_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.29.0+cu130")
    source = source_of(
        config(
            runtime_env={"env_vars": {"PYTHONHASHSEED": "0"}},
            max_model_len=4096,
            block_size=32,
            enforce_eager=True,
            enable_prefix_caching=False,
            limit_mm_per_prompt={"image": 3},
            kv_events_config={"endpoint": "tcp://*:5557"},
            seed=None,
            frontend={
                "chat_template": "{{ messages }} 'quoted'\n",
                "chat_template_content_format": "string",
                "default_chat_template_kwargs": {"thinking": True},
            },
        )
    )
    settings = as_vllm(source.engine_settings)
    assert (source.model, source.names, source.backend) == (
        "org/model",
        ("served",),
        "vllm==0.29.0",
    )
    assert (settings.hash_seed, settings.max_model_len, settings.block_size) == ("0", 4096, 32)
    assert settings.limits == {"image": 3}
    assert settings.chat_template == "{{ messages }} 'quoted'\n"
    assert settings.content_format == "string"
    assert settings.chat_template_kwargs == {"thinking": True}
    assert "--enforce-eager" in settings.without_effect
    with pytest.raises(ModelError, match="hf-overrides"):
        source_of(config(hf_overrides={"model_type": "a"}))


if importlib.util.find_spec("vllm"):

    @pytest.mark.process
    @pytest.mark.filterwarnings("ignore")  # of vLLM and its dependencies
    def test_rays_own_classes(small_model: Callable[[str], Path]) -> None:
        """The same IDs as Ray's own tokenizer, from one LLMConfig."""
        from ray.llm._internal.serve.routing_policies.kv_aware.vllm.tokenizer import Tokenizer
        from ray.serve.llm import LLMConfig

        from mmroute.server.ray.llm import KVBlockHashRouter, LLMRouter

        model = {"model_id": "m", "model_source": str(small_model(MODEL))}
        llm_config = LLMConfig(
            model_loading_config=model,
            engine_kwargs={"limit_mm_per_prompt": {"image": 4}},
            deployment_config={
                "request_router_config": {
                    "request_router_class": "mmroute.server.ray:KVBlockHashRouter"
                }
            },
        )
        own = Tokenizer(llm_config)
        made = IngressTokenizer(source_of(llm_config), own)
        _, cases = read_vectors(PATH)
        for case in cases[:40]:
            request = with_files(request_of(case), file_urls())
            payload = {"model": "m", "messages": request["messages"]}
            if "refused" not in case["expect"]:
                assert tokenized(made, payload) == tokenized(own, payload)
        completion = {"model": "m", "prompt": "Hello there"}
        assert tokenized(made, completion) == tokenized(own, completion)
        from ray.llm._internal.serve.routing_policies.kv_aware.kv_aware_router import is_kv_aware

        assert is_kv_aware(llm_config)
        assert KVBlockHashRouter.choose_replicas.__qualname__ == "BlockHashRouter.choose_replicas"
        sent = LLMRouter._push_prompt_tokens(
            object.__new__(LLMRouter), token_endpoint=None, replica_id="r",
            request_token_ids=PromptIds([1], None, forwardable=False),
        )  # fmt: skip
        assert sent is None
