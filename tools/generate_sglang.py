"""Compute the expected answers of SGLang with its own code.

Run it where SGLang is installed (a CPU is enough), from the repository's root, once for each model:

    python tools/generate_sglang.py MODEL

The newest version writes ``vectors/sglang/MODEL.jsonl``. An earlier one, which is installed or
stands in front (`PYTHONPATH`) with the transformers that it requires, writes
``vectors/sglang/VERSION/MODEL.jsonl``: the answers that differ from those of the version after it.

Its chat route, tokenizer manager, processors, padding, prefix cache and events run as they are.
What is missing is a scheduler in a process of its own, and the weights of the model, whose method
that writes pad values is called on an object without any.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import copy
import io
import logging
import os
import tempfile
from array import array
from collections.abc import Coroutine, Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vector_files import VECTORS, requests_of, runs, write_lines

os.environ.setdefault("HF_HUB_OFFLINE", "1")
VERSION = "0.5.23"  # the newest
FOLDER = VECTORS / "sglang"
PAGE_SIZE = 16


class Engine:
    """One model. Only one can be made in a process."""

    def __init__(self, directory: Path, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        import sglang
        from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
        from sglang.srt.managers.tokenizer_manager import TokenizerManager
        from sglang.srt.multimodal.processors import base_processor
        from sglang.srt.parser.template_manager import TemplateManager
        from sglang.srt.runtime_context import get_lora, get_serving, publish
        from sglang.srt.server_args import ServerArgs

        logging.disable(logging.WARNING)
        if sglang.__version__ == "0.5.20":  # it takes any machine with its wheel for one with a GPU
            base_processor._is_cpu = True
        arguments = ServerArgs(
            model_path=str(directory), device="cpu", mm_processor_worker_num=1,
            enable_multimodal=True, mamba_radix_cache_strategy="no_buffer",
            disable_overlap_schedule=True, **options,
        )  # fmt: skip
        publish(arguments, role="tokenizer")
        manager = TokenizerManager.__new__(TokenizerManager)  # without its sockets
        manager.server_args = arguments
        manager.skip_tokenizer_init = False
        manager.allow_auto_truncate = get_serving().allow_auto_truncate
        manager.enable_lora = get_lora().enable_lora
        manager.preferred_sampling_params = None
        manager.enable_metrics = manager.enable_trace = False
        manager.init_model_config()
        manager.init_tokenizer_and_processor()
        manager.init_running_status()
        manager.max_req_input_len = 1 << 30
        manager._create_tokenized_object = lambda _o, _text, ids, _e, media, *_: (ids, media)
        templates = TemplateManager()
        templates.initialize_templates(manager, str(directory))
        self.manager = manager
        self.chats = OpenAIServingChat(manager, templates)
        self._loop = asyncio.SelectorEventLoop()
        asyncio.set_event_loop(self._loop)

    def answer(self, case: dict[str, Any], urls: list[str]) -> dict[str, Any]:
        """What the engine holds for a request whose images are these data URLs."""
        from sglang.srt.managers.schedule_batch import MultimodalInputs

        try:
            request = self._internal(case, urls)
            request.normalize_batch_and_arguments()
            ids, media = self.run(self.manager._tokenize_one_request(request))
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {error}".partition("\n")[0][:160]}
        ids = padded = list(map(int, ids))
        features = []
        if media is not None:
            inputs = MultimodalInputs.from_processor_output(media)
            features = [[list(run) for run in item.offsets or ()] for item in inputs.mm_items]
            padded = inputs.padded_input_ids
            if padded is None:
                try:
                    padded = self._pad(array("q", ids), inputs)
                except ZeroDivisionError as error:  # LLaVA's resolutions without a tile
                    return {"refused": f"{type(error).__name__}: {error}"}
        hashes = self._event_hashes(array("q", padded), case.get("cache_salt"))
        return {"token_ids": ids, "features": features, "event_hashes": hashes}

    def run(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """The result of what is asked, which must come in a minute."""
        return self._loop.run_until_complete(asyncio.wait_for(asked, 60))

    def _internal(self, case: dict[str, Any], urls: list[str]) -> Any:
        from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
        from sglang.srt.managers.io_struct import GenerateReqInput

        if "messages" in case:
            waiting = iter(urls)
            messages = [_with_urls(message, waiting) for message in case["messages"]]
            names = ("tools", "tool_choice", "reasoning_effort", "chat_template_kwargs",
                     "cache_salt", "continue_final_message")  # fmt: skip
            body = {name: case[name] for name in names if name in case}
            chat = ChatCompletionRequest(model="m", messages=messages, max_tokens=1, **body)
            if refused := self.chats._validate_request(chat):
                raise ValueError(refused)
            request, _ = self.chats._convert_to_internal_request(chat)
        else:
            request = GenerateReqInput(
                text=case.get("prompt"),
                input_ids=case.get("prompt_token_ids"),
                image_data=urls or None,
                sampling_params={"max_new_tokens": 1},
            )
        uuids = [image.get("uuid") for image in case.get("images", ())]
        if hashes := case.get("mm_hashes") or (uuids if all(uuids) else None):
            request.mm_hashes = hashes
        return request

    def _pad(self, ids: Any, inputs: Any) -> Any:
        import transformers
        from sglang.srt.model_loader.utils import get_model_architecture
        from sglang.srt.models.llava import LlavaForConditionalGeneration

        model_class, _ = get_model_architecture(self.manager.model_config)
        if model_class.__module__.endswith(".mistral"):  # hands all on to this one
            model_class = LlavaForConditionalGeneration
        config = copy.deepcopy(self.manager.model_config.hf_config)
        model = _without_weights(model_class, config)
        if hasattr(model_class, "_get_sgl_model_cls"):  # Pixtral's tower decides how
            vision = model._get_sgl_model_cls(config.vision_config, transformers.AutoModel)
            model.vision_tower = _without_weights(vision, config.vision_config)
            model.image_size = config.vision_config.image_size  # as LLaVA's constructor does
            model.patch_size = config.vision_config.patch_size
            model.image_feature_len = (model.image_size // model.patch_size) ** 2
            config.image_aspect_ratio = "anyres"
            sides = (96, 224, 384, 512, 768, 1024)
            model.image_grid_pinpoints = [[side, side] for side in sides]
        pad = getattr(model, "pad_input_ids", lambda unpadded, _: unpadded)
        return pad(ids, inputs)

    def _event_hashes(self, padded: Any, salt: str | None) -> list[int]:
        import torch
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams
        from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

        cache = RadixCache.create_simulated(page_size=PAGE_SIZE, enable_kv_cache_events=True)
        key = RadixKey(padded, cache_salt=salt).page_aligned(PAGE_SIZE)
        if len(key):
            cache.insert(InsertParams(key=key, value=torch.arange(len(key))))
        stored = [e for e in cache.take_events() if type(e).__name__ == "BlockStored"]
        return [number for event in stored for number in event.block_hashes]


def _without_weights(model_class: Any, config: Any) -> Any:
    """An object of a class with what its method that writes pad values reads."""
    import torch
    from sglang.srt.managers import mm_utils

    model = model_class.__new__(model_class)
    torch.nn.Module.__init__(model)
    object.__setattr__(model, "config", config)
    # Before 0.5.23 some classes keep this.
    pattern = getattr(mm_utils, "MultiModalityDataPaddingPatternMultimodalTokens", None)
    if pattern is not None:
        model.padding_pattern = model.input_padder = pattern()
    return model


def _with_urls(message: dict[str, Any], urls: Any) -> dict[str, Any]:
    if not isinstance(message["content"], list):
        return message
    parts = [
        {"type": "image_url", "image_url": {"url": next(urls)}} if part["type"] == "image" else part
        for part in message["content"]
    ]
    return {**message, "content": parts}


def main() -> None:
    """Write the file of one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=[path.stem for path in FOLDER.glob("*.jsonl")])
    write(parser.parse_args().model)


def write(model: str) -> None:
    """Write the file of one model, by the version that is imported."""
    from sglang_files import files_of, recorded
    from small_models import fingerprint, write_model

    running, files = version("sglang"), files_of(model)
    meta = {
        "kind": "meta", "model": model, "backend": "sglang", "backend_version": running,
        "transformers": version("transformers"), "tokenizers": version("tokenizers"),
        "fingerprint": fingerprint(files),
    }  # fmt: skip
    lines = []
    with tempfile.TemporaryDirectory() as directory:
        # SGLang takes some chat templates by the path of a model.
        engine = Engine(write_model(files, Path(directory) / model))
        for case in requests_of(FOLDER / f"{model}.jsonl"):
            pictures = [_picture(image) for image in case.get("images", ())]
            answer = engine.answer(copy.deepcopy(case), pictures)  # SGLang changes what it is given
            if "token_ids" in answer:
                answer = {"token_runs": runs(answer.pop("token_ids")), **answer}
            lines.append({**case, "expect": answer})
    if running == VERSION:
        write_lines(FOLDER / f"{model}.jsonl", [meta, *lines])
        return
    later = {case["id"]: case["expect"] for case in recorded(model, after=running)}
    told = [line for line in lines if not _alike(line["expect"], later[line["id"]])]
    lines = [{"id": line["id"], "expect": line["expect"]} for line in told]
    write_lines(FOLDER / running / f"{model}.jsonl", [meta, *lines])


def _alike(answer: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two answers are the same, beside the words of a refusal."""
    return answer == other or ("refused" in answer and "refused" in other)


def _picture(numbers: dict[str, Any]) -> str:
    from PIL import Image

    picture = Image.new("RGB", (numbers["width"], numbers["height"]), (9, 90, 200))
    exif = Image.Exif()
    if "exif_orientation" in numbers:
        exif[0x0112] = numbers["exif_orientation"]
    file = io.BytesIO()
    picture.save(file, "PNG", exif=exif)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


if __name__ == "__main__":
    main()
