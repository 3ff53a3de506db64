"""Compute the expected answers in this directory with vLLM's own code.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tests/vectors/generate.py [MODEL ...]

Nothing here decides what is right: renderer, tokenizer, processor and input checks are vLLM's.
"""

from __future__ import annotations

import argparse
import base64
import copy
import io
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

ENGINE_VERSION = "0.33.0"
EMBEDDED = "pixtral-12b-2409"


def main() -> None:
    """Write one file for each model named, or for all."""
    from cases import PLACEHOLDERS, cases

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(PLACEHOLDERS))
    parser.add_argument("--phi3v-code", help="directory of Phi-3-vision's processor code")
    parser.add_argument("--params", help=f"params.json of {EMBEDDED}")
    arguments = parser.parse_args()
    if version("vllm") != ENGINE_VERSION:
        sys.exit(f"these vectors are vLLM {ENGINE_VERSION}'s; installed is {version('vllm')}")
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as directory:
            engine, fingerprint = _engine(model, Path(directory), arguments)
            lines = [_meta(model, fingerprint)]
            for case in cases(model):
                if not case.get("images"):
                    case.pop("images", None)
                lines.append(case | {"expect": engine.answer(case)})
        text = "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in lines)
        (HERE / f"{model}.jsonl").write_text(text, encoding="utf-8")
        refused = sum("refused" in line.get("expect", {}) for line in lines)
        print(f"{model}: {len(lines) - 1} cases, {refused} refused")


def _meta(model: str, fingerprint: str) -> dict[str, str]:
    packages = {name: version(name) for name in ("transformers", "tokenizers", "mistral-common")}
    return {"kind": "meta", "model": model, "backend": "vllm", "backend_version": ENGINE_VERSION,
            **packages, "fingerprint": fingerprint}  # fmt: skip


def _engine(model: str, directory: Path, arguments: argparse.Namespace) -> tuple[Engine, str]:
    from small_models import SMALL_MODELS, fingerprint, write_model

    if model == EMBEDDED:
        import hashlib
        import shutil

        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

        tekken = Path(MistralTokenizer._data_path()) / "tekken_240911.json"
        shutil.copy(tekken, directory / "tekken.json")
        shutil.copy(arguments.params, directory / "params.json")
        return (
            Engine(directory, tokenizer_mode="mistral", config_format="mistral"),
            hashlib.sha256(tekken.read_bytes()).hexdigest(),
        )
    files = SMALL_MODELS[model]()
    write_model(files, directory)
    if files["config.json"]["model_type"] == "phi3_v":
        _add_phi3v_code(directory, Path(arguments.phi3v_code))
    return Engine(directory, trust_remote_code=True), fingerprint(files)


def _add_phi3v_code(directory: Path, code: Path) -> None:
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
    """vLLM up to the point where a request enters its scheduler."""

    def __init__(self, directory: Path, **options: Any) -> None:
        from vllm.config import CacheConfig, ModelConfig, VllmConfig
        from vllm.renderers.registry import renderer_from_config
        from vllm.v1.engine.input_processor import InputProcessor

        model = str(directory)
        config = ModelConfig(model=model, tokenizer=model, dtype="bfloat16", seed=0, **options)
        vllm_config = VllmConfig(model_config=config, cache_config=CacheConfig(block_size=16))
        self.renderer = renderer_from_config(vllm_config)
        self.input_processor = InputProcessor(vllm_config, self.renderer)

    def answer(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """The prompt as vLLM stores it, or the beginning of its refusal."""
        try:
            return self._stored(case)
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {error}"[:160]}

    def _stored(self, case: Mapping[str, Any]) -> dict[str, Any]:
        from vllm.sampling_params import SamplingParams

        prompt, parameters = self._chat(case) if "messages" in case else self._completion(case)
        (tokenized,) = self.renderer.tokenize_prompts([prompt], parameters)
        if case.get("mm_processor_kwargs"):
            tokenized["mm_processor_kwargs"] = case["mm_processor_kwargs"]
        engine_input = self.renderer.process_for_engine(
            tokenized, time.time(), tok_params=parameters
        )
        request = self.input_processor.process_inputs(
            request_id="0",
            prompt=engine_input,
            params=SamplingParams(max_tokens=1),
            supported_tasks=("generate",),
        )
        ids = list(request.prompt_token_ids)
        placeholders = engine_input.get("mm_placeholders", {}).get("image", [])
        return {"token_runs": _runs(ids), "n_tokens": len(ids),
                "placeholders": [_range(p) for p in placeholders]}  # fmt: skip

    def _chat(self, case: Mapping[str, Any]) -> tuple[Any, Any]:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.renderers.params import merge_kwargs
        from vllm.utils.mistral import is_mistral_tokenizer

        fields = ("add_special_tokens", "add_generation_prompt", "continue_final_message",
                  "chat_template_kwargs", "tools", "mm_processor_kwargs")  # fmt: skip
        body = {name: case[name] for name in fields if name in case}
        messages = _with_files(case["messages"], case.get("images", []))
        request = ChatCompletionRequest(model="m", messages=messages, max_tokens=1, **body)
        tools = [tool.model_dump() for tool in request.tools] if request.tools else None
        mistral = is_mistral_tokenizer(self.renderer.tokenizer)
        parameters = request.build_chat_params(None, "auto").with_defaults(
            merge_kwargs(None, {"tools": tools, "tokenize": mistral}),
            default_mm_processor_kwargs=request.mm_processor_kwargs,
        )
        _, prompt = self.renderer.render_messages(request.messages, parameters)
        return prompt, request.build_tok_params(self.renderer.model_config)

    def _completion(self, case: Mapping[str, Any]) -> tuple[Any, Any]:
        from vllm.entrypoints.openai.completion.protocol import CompletionRequest

        request = CompletionRequest(
            model="m", prompt="-", max_tokens=1,
            add_special_tokens=case.get("add_special_tokens", False),
        )  # fmt: skip
        if "prompt" in case:
            prompt: dict[str, Any] = {"prompt": case["prompt"]}
        else:
            prompt = {"prompt_token_ids": list(case["prompt_token_ids"])}
        if case.get("images"):
            images = [_picture(size) for size in case["images"]]
            prompt["multi_modal_data"] = {"image": images}
        return prompt, request.build_tok_params(self.renderer.model_config)


def _with_files(messages: list[Any], images: list[Any]) -> list[Any]:
    """The messages with a real picture of the right size for every image part."""
    messages = copy.deepcopy(messages)
    waiting = iter(images)
    for message in messages:
        content = message.get("content")
        for i, part in enumerate(content if isinstance(content, list) else []):
            if part == {"type": "image"}:
                url = {"url": _data_url(_picture(next(waiting)))}
                content[i] = {"type": "image_url", "image_url": url}
    return messages


def _picture(size: Mapping[str, int]) -> Any:
    from PIL import Image

    return Image.new("RGB", (size["width"], size["height"]), (size["width"] % 256, 90, 160))


def _data_url(picture: Any) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _range(placeholder: Any) -> dict[str, Any]:
    result = {"offset": int(placeholder.offset), "length": int(placeholder.length)}
    if placeholder.is_embed is None:
        return result
    return result | {"embed_runs": _runs([int(v) for v in placeholder.is_embed.tolist()])}


def _runs(values: list[int]) -> list[list[int]]:
    return [[value, len(list(run))] for value, run in itertools.groupby(values)]


if __name__ == "__main__":
    main()
