"""Command lines as operators write them, one or two for each kind of model that is supported."""

from __future__ import annotations

import pytest

from mmroute import ModelError, Reason
from mmroute.engines.vllm.settings import VllmSettings

# Source of the options that each has: vllm-project/recipes, November 2026.
LINES = {
    "Qwen2-VL": "Qwen/Qwen2-VL-7B-Instruct -tp 2 --max-model-len 32K --limit-mm-per-prompt.image 4",
    "Qwen2.5-VL": """Qwen/Qwen2.5-VL-72B-Instruct --host 0.0.0.0 --port 80 --tensor-parallel-size 4
        --mm-encoder-tp-mode data --limit-mm-per-prompt '{"image":2,"video":0}'""",
    "Qwen3-VL": """Qwen/Qwen3-VL-235B-A22B-Instruct-FP8 --tensor-parallel-size 8 --async-scheduling
        --mm-encoder-tp-mode data --enable-expert-parallel --limit-mm-per-prompt.video 0""",
    "Qwen3.5": """Qwen/Qwen3.5-397B-A17B -tp 8 --max-model-len 262144 --reasoning-parser qwen3
        --language-model-only --enable-prefix-caching""",
    "Qwen3-Omni": """Qwen/Qwen3-Omni-30B-A3B-Instruct --max-num-seqs 8 --dtype bfloat16 -tp 2
        --allowed-local-media-path /""",
    "GLM-4.5V": """zai-org/GLM-4.5V-FP8 -tp 4 --tool-call-parser glm45 --reasoning-parser glm45
        --enable-auto-tool-choice --mm-processor-cache-type shm --mm-encoder-tp-mode data""",
    "GLM-4.6V": """zai-org/GLM-4.6V -tp 4 --media-io-kwargs '{"video": {"num_frames": -1}}'
        --max_num_batched_tokens=32K --default-chat-template-kwargs '{"enable_thinking": false}'""",
    "InternVL": """OpenGVLab/InternVL3_5-8B --trust-remote-code --mm-processor-kwargs
        '{"max_dynamic_patch": 4}' --gpu-memory-utilization 0.95""",
    "Gemma 3": "google/gemma-3-27b-it --kv-cache-dtype fp8 --max-num-seqs 256 --seed 42",
    "Gemma 4": """google/gemma-4-31B-it -tp 2 --max-model-len 32k --reasoning-parser gemma4
        --mm-processor-kwargs.max_soft_tokens 560""",
    "Llama 4": """meta-llama/Llama-4-Scout-17B-16E-Instruct -tp 8 --max-model-len 1M
        --kv-cache-dtype fp8 --override-generation-config '{"attn_temperature_tuning": true}'""",
    "LLaVA": "llava-hf/llava-v1.6-mistral-7b-hf --chat-template-content-format openai -O3",
    "LLaVA-OneVision": "llava-hf/llava-onevision-qwen2-7b-ov-hf --no-enable-log-requests",
    "Phi-3.5-vision": "microsoft/Phi-3.5-vision-instruct --runner generate --trust-remote-code",
    "Pixtral": """mistralai/Pixtral-12B-2409 --tokenizer-mode mistral --config-format mistral
        --load-format mistral --limit-mm-per-prompt '{"image": 10}'""",
    "Mistral 3": """mistralai/Mistral-Small-3.2-24B-Instruct-2506 --tokenizer_mode mistral
        --config_format mistral --load_format mistral --tool-call-parser mistral
        --enable-auto-tool-choice --attention-config '{"backend": "FLASHINFER"}'""",
    "Kimi-K2.5": """moonshotai/Kimi-K2.5 -tp 8 --mm-encoder-tp-mode data --tool-call-parser kimi_k2
        --reasoning-parser kimi_k2 --compilation_config.pass_config.fuse_allreduce_rms true""",
    "MiniCPM-V": "openbmb/MiniCPM-V-4_5 --dtype auto --api-key token --uvicorn-log-level error",
    "Nemotron": """nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16 --trust-remote-code --async-scheduling
        --allowed-media-domains upload.wikimedia.org --video-pruning-rate 0""",
    "DeepSeek-OCR": """deepseek-ai/DeepSeek-OCR --no-enable-prefix-caching --mm-processor-cache-gb 0
        --logits_processors vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor""",
    "PaddleOCR-VL": """PaddlePaddle/PaddleOCR-VL --trust-remote-code --max-num-batched-tokens 16384
        --no-enable-prefix-caching --mm-processor-cache-gb 0""",
    "text": """VLLM_USE_DEEP_GEMM=0 vllm serve Qwen/Qwen3-235B-A22B --data-parallel-size 8
        --enable-expert-parallel --kv-events-config '{"publisher":"zmq","topic":"kv@pod@m"}'
        --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'""",
}  # fmt: skip


@pytest.mark.parametrize("model", LINES)
def test_command_lines_are_read_whole(model: str) -> None:
    line = LINES[model]
    line = line if "vllm serve" in line else f"vllm serve {line}"
    settings = VllmSettings.from_args(line)
    name = next(word for word in line.split() if "/" in word)
    assert settings.model == name
    assert settings.hashes_refused == ""


def test_what_a_recipe_changes_is_read() -> None:
    read = {model: VllmSettings.from_args(line) for model, line in LINES.items()}
    assert read["Qwen2-VL"].limits == {"image": 4}
    assert read["Qwen2.5-VL"].limits == {"image": 2, "video": 0}
    assert read["GLM-4.6V"].max_num_batched_tokens == 32768
    assert read["GLM-4.6V"].chat_template_kwargs == {"enable_thinking": False}
    assert read["Gemma 4"].mm_processor_kwargs == {"max_soft_tokens": 560}
    assert read["Gemma 4"].max_model_len == 32_000
    assert read["LLaVA"].content_format == "openai"
    assert read["Mistral 3"].tokenizer_mode == "mistral"
    assert read["Nemotron"].media_domains == frozenset({"upload.wikimedia.org"})
    assert read["PaddleOCR-VL"].processor_cache_off


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('m --hf-overrides \'{"model_type": "other"}\'', "--hf-overrides"),
        ("m --skip-tokenizer-init", "--skip-tokenizer-init"),
        ("m --runner pooling", "--runner"),
    ],
)
def test_recipes_that_are_not_covered_are_refused_by_name(line: str, named: str) -> None:
    with pytest.raises(ModelError, match=named) as caught:
        VllmSettings.from_args(line)
    assert caught.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING
