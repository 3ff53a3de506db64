"""The oracle that runs vLLM in this process, up to the point where a request enters its scheduler.

Renderer, tokenizer, media reading, processor and input checks are vLLM's; nothing is computed here.
No weights are read, and no GPU is used. Source: vLLM
``entrypoints/openai`` (what a server calls, in this order), ``v1/engine/input_processor.py``.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Mapping
from typing import Any, Final

from mmroute.engines.running import running_engine
from mmroute.errors import MmrouteError
from mmroute.geometry import EmbedRuns
from mmroute.lab.parity.cases import Case, Outcome, merged_runs
from mmroute.lab.parity.oracles.common import OracleError, answered, ask, given, prompt_field
from mmroute.lab.parity.oracles.pictures import pictures, with_pictures
from mmroute.model_directory import ModelFiles

_CHAT_FIELDS: Final = (
    "add_special_tokens", "add_generation_prompt", "continue_final_message",
    "chat_template_kwargs", "tools", "reasoning_effort", "documents", "mm_processor_kwargs",
    "media_io_kwargs", "truncate_prompt_tokens",
)  # fmt: skip


class VllmOracle:
    """Runs the installed vLLM for one model in this process, up to the scheduler."""

    name = "vllm"

    def __init__(self, files: ModelFiles, *, trust_remote_code: bool = False) -> None:
        """Let vLLM load a model's configuration, tokenizer and processor."""
        _choose_platform()
        try:
            import vllm  # large, and not a dependency
            from vllm.config import CacheConfig, ModelConfig, VllmConfig
            from vllm.renderers.online_renderer import OnlineRenderer
            from vllm.renderers.registry import renderer_from_config
            from vllm.v1.engine.input_processor import InputProcessor
        except (ImportError, OSError) as error:
            raise OracleError(
                f"vLLM cannot be imported here: {error}. Run this where vLLM 0.33 is installed, or "
                "compare with a running server: --against http://HOST:PORT"
            ) from error
        self.version = str(vllm.__version__)
        self.running = running_engine(self.name, self.version)
        try:
            options = engine_options(files)
            config = ModelConfig(
                dtype="bfloat16", seed=0, trust_remote_code=trust_remote_code, **options
            )
            vllm_config = VllmConfig(model_config=config, cache_config=CacheConfig(block_size=16))
            self.renderer: Any = renderer_from_config(vllm_config)
            self.input_processor: Any = InputProcessor(vllm_config, self.renderer)
            self._online: Any = OnlineRenderer(
                config,
                self.renderer,
                request_logger=None,
                chat_template=None,
                chat_template_content_format="auto",
            )
        except MmrouteError:
            raise
        except Exception as error:  # vLLM raises many types for models that it cannot load
            raise OracleError(
                f"vLLM {self.version} cannot load {files.name}: {type(error).__name__}: {error}\n"
                "Compare with a server that has it (--against http://HOST:PORT), or with recorded "
                "answers (--against FILE.jsonl). --trust-remote-code lets its own code run."
            ) from error
        if config.runner_type != "generate":
            raise OracleError(f"a server of vLLM embeds with {files.name}, and answers no prompts")
        self.input_processor._validate_lora = lambda *_: None  # noqa: SLF001 - adapters are only named here

    def answer(self, case: Case) -> Outcome:
        # In another version of vLLM these private functions may be missing, which is no refusal.
        return ask(lambda: self.entered(case), AttributeError)

    def entered(self, case: Case) -> Outcome:
        """The outcome of a request that vLLM takes; whatever vLLM raises is raised."""
        request, ranges = self.enter(case.request)
        placed = [(int(r.offset), int(r.length)) for r in ranges]
        return answered(request.prompt_token_ids, placed, list(map(_features, ranges)))

    def enter(self, request: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """A request as the scheduler gets it, and vLLM's placeholder ranges of its items."""
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import SamplingParams

        if prompt_field(request) != "messages":
            engine_input = self._rendered(request, *self._completion(request))
        elif self._online.use_harmony:
            chat = _chat_request(request)
            _, (engine_input,) = self._online._make_request_with_harmony(  # noqa: SLF001 - what the server calls
                chat, chat.tools is not None
            )
        else:
            engine_input = self._rendered(request, *self.chat_prompt(request))
        lora = request.get("lora")
        core_request = self.input_processor.process_inputs(
            request_id="0",
            prompt=engine_input,
            params=SamplingParams(max_tokens=1),
            supported_tasks=("generate",),
            lora_request=LoRARequest(**{"lora_int_id": 1, **lora}) if lora else None,
        )
        ranges = engine_input.get("mm_placeholders", {})
        placed = [range_ for listed in ranges.values() for range_ in listed]
        return core_request, sorted(placed, key=lambda range_: range_.offset)

    def _rendered(self, request: Mapping[str, Any], prompt: Any, parameters: Any) -> Any:
        (tokenized,) = self.renderer.tokenize_prompts([prompt], parameters)
        extras = given(request, "mm_processor_kwargs", "media_io_kwargs", "cache_salt")
        tokenized |= {name: value for name, value in extras.items() if value}
        return self.renderer.process_for_engine(tokenized, time.time(), tok_params=parameters)

    def chat_prompt(self, request: Mapping[str, Any]) -> tuple[Any, Any]:
        """The prompt of a chat as vLLM's renderer gives it, and the parameters of its encoding."""
        from vllm.renderers.params import merge_kwargs
        from vllm.utils.mistral import is_mistral_tokenizer

        chat = _chat_request(request)
        tools = [tool.model_dump() for tool in chat.tools] if chat.tools else None
        mistral = is_mistral_tokenizer(self.renderer.tokenizer)
        parameters = chat.build_chat_params(None, "auto").with_defaults(
            merge_kwargs(None, {"tools": tools, "tokenize": mistral}),
            default_mm_processor_kwargs=chat.mm_processor_kwargs,
        )
        _, prompt = self.renderer.render_messages(chat.messages, parameters)
        return prompt, chat.build_tok_params(self.renderer.model_config)

    def _completion(self, request: Mapping[str, Any]) -> tuple[Any, Any]:
        from vllm.entrypoints.openai.completion.protocol import CompletionRequest

        completion = CompletionRequest(
            model="m",
            prompt="-",
            max_tokens=1,
            add_special_tokens=request.get("add_special_tokens", False),
            **given(request, "truncate_prompt_tokens"),
        )
        if request.get("prompt") is not None:
            prompt: dict[str, Any] = {"prompt": request["prompt"]}
        else:
            prompt = {"prompt_token_ids": list(request["prompt_token_ids"])}
        if request.get("images"):
            prompt["multi_modal_data"] = {"image": pictures(request["images"])}
        return prompt, completion.build_tok_params(self.renderer.model_config)


def _features(placed: Any) -> EmbedRuns:
    """The positions of vLLM's placeholder range that receive features, as runs."""
    if placed.is_embed is None:
        return merged_runs([(True, int(placed.length))])
    return merged_runs((bool(embed), 1) for embed in placed.is_embed.tolist())


def _chat_request(request: Mapping[str, Any]) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    # The messages are copied, because vLLM writes into them.
    messages = copy.deepcopy(with_pictures(request["messages"], request.get("images")))
    body = given(request, *_CHAT_FIELDS)
    return ChatCompletionRequest(model="m", messages=messages, max_tokens=1, **body)


def _choose_platform() -> None:
    """Keep vLLM from using a GPU, and from writing its log to standard output."""
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def engine_options(files: ModelFiles) -> dict[str, Any]:
    """The options for a model that differ from vLLM's defaults."""
    model = str(files.root) if files.commit is None else files.name
    options: dict[str, Any] = {
        "model": model,
        "tokenizer": model,
        "revision": files.commit,
        "tokenizer_revision": files.commit,
    }
    if not files.has("config.json"):
        if not files.has("params.json"):
            raise OracleError(
                f"vLLM needs the params.json of {files.name}, which is not embedded. Give a "
                "directory that has it beside tekken.json."
            )
        # Without these options vLLM detects this format only if there are weights in it.
        return options | {"tokenizer_mode": "mistral", "config_format": "mistral"}
    if "quantization_config" in files.object("config.json"):
        # Quantization changes no token ID, and vLLM refuses some kinds at once.
        options["hf_overrides"] = {"quantization_config": None}
    return options
