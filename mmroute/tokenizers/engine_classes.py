"""The tokenizer class that the engine uses for a model, by its model type and declared class.

vLLM 0.33.0 hands the choice to transformers 5.20.2, except for a few model types of its own.
Sources: vLLM ``tokenizers/registry.py`` (`_MODEL_TYPES_WITH_INCORRECT_TOKENIZER_CLASS`),
transformers ``models/auto/tokenization_auto.py`` (`TOKENIZER_MAPPING_NAMES`,
`MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS`, `AutoTokenizer.from_pretrained`).
"""

from __future__ import annotations

from typing import Final

from mmroute.tokenizers.pipelines import PIPELINES

FILE: Final = "file"
"""Stands in place of a class: the engine runs tokenizer.json as it is written."""

_KEPT_BY_VLLM: Final = frozenset(
    ["internlm2", "step3_vl", "step3p7", "step5", "step5_vl", "unlimited-ocr", "unlimited_ocr"]
)
# The class that transformers registers for a model type. For the types under `FILE` it registers
# its general class, or mistral-common's, which vLLM does not allow.
_REGISTERED: Final = {
    model_type: name
    for name, model_types in {
        FILE: """
            EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chameleon chatlm
            cohere_asr deepseek_ocr deepseek_ocr2 deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4
            deepseek_vl deepseek_vl_hybrid deepseek_vl_v2 ernie4_5 ernie4_5_moe flex_olmo fuyu glm
            glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2 gpt_bigcode
            granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat hyperclovax
            hyperclovax_vlm internlm2 jamba janus kimi_k25 kimi_linear kosmos-2 llava llava_next
            mimo_v2_flash minicpm3 minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral ministral3
            mistral mistral3 mixtral modernbert modernbert-decoder molmo molmo2 nemotron nvfp4
            nystromformer olmo2 olmo3 olmo_hybrid opencua openvla paddleocr_vl pegasus_x persimmon
            phi3 phi3_v phimoe pix2struct pixtral smolvlm stablelm step3_vl step3p5 umt5
            unlimited_ocr vipllava voxtral voxtral_realtime xlm-roberta-xl""",
        "Qwen2Tokenizer": """
            audioflamingo3 colqwen2 cosmos3_omni fun_asr_nano hunyuan_vl internvl lighton_ocr
            moss_transcribe_diarize ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio
            qwen2_moe qwen2_vl qwen3 qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl
            qwen3_vl_moe vibevoice""",
        "Qwen3_5Tokenizer": "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp",
        "LlamaTokenizer": "idefics idefics2",
        "GemmaTokenizer": """
            diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma
            shieldgemma2 t5gemma zaya""",
        "GPT2Tokenizer": """
            blip-2 codegen dbrx emu3 gpt-sw3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip
            instructblipvideo jais2 opt phi starcoder2""",
        "GPTNeoXTokenizer": "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm",
        "CohereTokenizer": "aya_vision cohere cohere2",
        "CodeLlamaTokenizer": "code_llama",
        "WhisperTokenizer": "whisper",
        "T5Tokenizer": "mt5 musicgen musicgen_melody switch_transformers t5",
        "RobertaTokenizer": "bart roberta longformer",
        "BertTokenizer": "bert blip distilbert electra nomic_bert",
        "XLMRobertaTokenizer": "gte jina_embeddings_v3 xlm-roberta",
    }.items()
    for model_type in model_types.split()
}
MODEL_TYPES: Final = tuple(sorted({*_REGISTERED, *_KEPT_BY_VLLM}))
"""Model types with a registered class. For others the declared class decides, else `FILE`."""
# Model types that get the registered class, whatever class the model declares.
_FORCED: Final = frozenset(
    ["hyperclovax_vision_v2", "qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp"]
)
_ALIASES: Final = {"Phi3Tokenizer": "LlamaTokenizer"}
# Classes of transformers that mmroute does not rebuild. For a class that transformers itself does
# not know, it uses its general one.
_OTHERS: Final = """
    Albert Auto Bart Barthez Bartpho Basic Bert BertGeneration BertJapanese Bertweet BigBird
    BioGpt Blenderbot BlenderbotSmall ByT5 CLIP CTRL Camembert Canine Character Clvp CodeGen
    CodeLlama ConvBert Cpm CpmAnt DPRContextEncoder DPRQuestionEncoder DPRReader Deberta
    DebertaV2 Dia DistilBert Electra Esm Esmc FNet FSMT FastSpeech2Conformer Flaubert Funnel
    GPTNeoXJapanese GPTSw3 Herbert LED Lasr LayoutLM LayoutLMv2 LayoutLMv3 LayoutXLM Longformer
    Luke Lxmert M2M100 MBart MBart50 MLuke MPNet Marian MarkupLM Mecab Mgpstr MobileBert Mvp
    MyT5 Nllb Nougat OpenAIGPT PLBart Parakeet Pegasus Perceiver Phobert Pop2Piano ProphetNet
    Rag Reformer RemBert RoCBert RoFormer Roberta SeamlessM4T Siglip Siglip2 Speech2Text
    SpeechT5 Splinter SqueezeBert T5 Tapas Tipsv2 Udop VideoPrism Vits Wav2Vec2CTC
    Wav2Vec2PhonemeCTC Whisper Wordpiece XGLM XLM XLMRoberta XLNet
"""


def engine_class(model_type: str | None, declared: str | None) -> str | None:
    """The class that the engine builds, or `FILE`; None for a class that mmroute does not rebuild.

    Args:
        model_type: the field of config.json.
        declared: the field `tokenizer_class` of tokenizer_config.json, else of config.json.

    >>> engine_class("llama", "LlamaTokenizerFast"), engine_class("qwen2", "LlamaTokenizerFast")
    ('LlamaTokenizer', 'Qwen2Tokenizer')
    >>> engine_class("phi3", "LlamaTokenizer"), engine_class("llama", "GPTTokenizer")
    ('file', 'file')
    """
    registered = _REGISTERED.get(model_type or "")
    if model_type in _KEPT_BY_VLLM or registered == FILE:
        return FILE
    # transformers 5 dropped the suffix "Fast": both names load the same class.
    name = declared.removesuffix("Fast") if declared is not None else None
    if name is None or model_type in _FORCED:
        name = registered or FILE
    name = _ALIASES.get(name, name)
    if name in PIPELINES:
        return name
    others = {f"{other}Tokenizer" for other in _OTHERS.split()} | {"MistralCommonBackend"}
    return None if name in others else FILE
