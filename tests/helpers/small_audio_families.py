"""Small directories of families that take audio alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from small_models import CHAT_TOKENS, Files, chat_files, of_audio, whisper
from small_parts import TEXT
from small_tokenizers import byte_level, special_ids


def _files(*names: Any, **config: Any) -> Files:
    files = of_audio(chat_files(*names, **config))
    files["tokenizer_config.json"]["tokenizer_class"] = "Qwen2Tokenizer"
    return files


def _granite(architecture: str, model_type: str) -> Files:
    files = _files(
        architecture,
        model_type,
        ("<|audio|>",),
        "<|audio|>",
        audio_token_index="<|audio|>",
        downsample_rate=5,
        window_size=15,
        text_config={**TEXT, "model_type": "granite"},
        encoder_config={"model_type": "granite_speech_encoder", "hidden_dim": 64, "num_layers": 2},
        projector_config={"model_type": "blip_2_qformer", "hidden_size": 64},
    )
    files["preprocessor_config.json"] = {
        "feature_extractor_type": "GraniteSpeechFeatureExtractor",
        "melspec_kwargs": {"hop_length": 160, "n_fft": 512, "sample_rate": 16000},
        "processor_class": "GraniteSpeechProcessor",
        "projector_downsample_rate": 4,
        "projector_window_size": 12,
        "sampling_rate": 16000,
    }
    files["processor_config.json"] = {"processor_class": "GraniteSpeechProcessor"}
    return files


def _whisper(processor: str, **limits: Any) -> Files:
    return {
        "preprocessor_config.json": {
            **whisper(feature_size=128, padding_side="right", return_attention_mask=True),
            "processor_class": processor,
        },
        "processor_config.json": {"processor_class": processor, **limits},
    }


def _glm_asr() -> Files:
    special = ("<|begin_of_audio|>", "<|pad|>", "<|end_of_audio|>")
    files = _files(
        "GlmAsrForConditionalGeneration",
        "glmasr",
        special,
        "".join(special),
        audio_token_id="<|pad|>",
        audio_config={"model_type": "glmasr_encoder", "hidden_size": 64, "num_hidden_layers": 2},
        text_config={**TEXT, "model_type": "llama"},
    )
    return files | _whisper("GlmAsrProcessor", audio_token="<|pad|>", max_audio_len=45)


def _flamingo() -> Files:
    files = _files(
        "AudioFlamingo3ForConditionalGeneration",
        "audioflamingo3",
        ("<sound>",),
        "<sound>",
        audio_token_id="<sound>",
        audio_config={"model_type": "audioflamingo3_encoder", "hidden_size": 64},
        text_config={**TEXT, "model_type": "qwen2"},
    )
    return files | _whisper("AudioFlamingo3Processor", audio_token="<sound>", max_audio_len=45)


def _vibevoice() -> Files:
    special = ("<|object_ref_start|>", "<|box_start|>", "<|object_ref_end|>")
    encoder = {"model_type": "vibevoice_acoustic_tokenizer_encoder"}
    files = _files(
        "VibeVoiceAsrForConditionalGeneration",
        "vibevoice_asr",
        special,
        "".join(special) + "\nThis is a <|AUDIO_DURATION|> seconds audio",
        acoustic_tokenizer_chunk_size=64000,
        acoustic_tokenizer_encoder_config={**encoder, "downsampling_ratios": [2, 4, 5, 8]},
        audio_bos_token_id="<|object_ref_start|>",
        audio_eos_token_id="<|object_ref_end|>",
        audio_token_id="<|box_start|>",
        semantic_tokenizer_encoder_config=encoder,
        text_config={**TEXT, "model_type": "qwen2"},
    )
    files["processor_config.json"] = {
        "audio_token": "<|box_start|>",
        "feature_extractor": {
            "feature_extractor_type": "VibeVoiceAcousticTokenizerFeatureExtractor",
            "pad_to_multiple_of": 1600,
            "sampling_rate": 24000,
        },
        "processor_class": "VibeVoiceAsrProcessor",
    }
    return files


def _fbank(architecture: str, model_type: str, extractor: str, **fields: Any) -> Files:
    special = ("<|AUDIO|>",)
    files = _files(architecture, model_type, special, "<|AUDIO|>", **_QWEN)
    files["preprocessor_config.json"] = {
        "chunk_length": 20,
        "feature_extractor_type": f"{extractor}FeatureExtractor",
        "feature_size": 80,
        "processor_class": f"{extractor}Processor",
        "sampling_rate": 16000,
        **fields,
    }
    return files


def _fun_chat() -> Files:
    special = ("<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>")
    files = _files(
        "FunAudioChatForConditionalGeneration",
        "funaudiochat",
        special,
        "".join(special),
        audio_config={"group_size": 3, "max_source_positions": 900},
        audio_token_index="<|AUDIO|>",
        text_config={**TEXT, "model_type": "qwen3"},
    )
    files["tokenizer_config.json"]["tokenizer_class"] = "PreTrainedTokenizerFast"
    speech = {"pad_token": "<|audio_pad|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    return files | _whisper("FunAudioChatProcessor") | {
        "speech_tokenizer/tokenizer.json": byte_level((*CHAT_TOKENS, "<|audio_pad|>")),
        "speech_tokenizer/tokenizer_config.json": speech,
    }  # fmt: skip


_MOSS: Final = """from transformers import PretrainedConfig, Qwen3Config


class SmallConfig(PretrainedConfig):
    model_type = "moss_audio"

    def __init__(self, language_config=None, **fields):
        super().__init__(**fields)
        self.language_config = Qwen3Config(**(language_config or {}))
        self.text_config = self.language_config
"""


def _moss(*, timed: bool) -> Files:
    special = ("<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>")
    files = _files(
        "MossAudioModel",
        "moss_audio",
        special,
        "".join(special),
        auto_map={"AutoConfig": "configuration_small.SmallConfig"},
        language_config={**TEXT, "model_type": "qwen3"},
    )
    ids = special_ids(files["tokenizer.json"])
    files["configuration_small.py"] = _MOSS
    files["tokenizer_config.json"]["tokenizer_class"] = "PreTrainedTokenizerFast"
    names = ("audio_start_id", "audio_token_id", "audio_end_id")
    files["processor_config.json"] = {
        **{name: ids[text] for name, text in zip(names, special, strict=True)},
        "enable_time_marker": timed,
        "mel_config": {"mel_dim": 128, "mel_hop_length": 160, "mel_sr": 16000},
    }
    return files


_QWEN: Final = {name: value for name, value in TEXT.items() if name != "model_type"}
_FRONTEND: Final = {
    "cmvn_file": None,
    "frame_length": 25,
    "frame_shift": 10,
    "fs": 16000,
    "lfr_m": 7,
    "lfr_n": 6,
    "n_mels": 80,
    "window": "hamming",
}


AUDIO_FAMILIES: Final[Mapping[str, Callable[[], Files]]] = {
    "small-granite-speech": lambda: _granite(
        "GraniteSpeechForConditionalGeneration", "granite_speech"
    ),
    "small-granite-speech-plus": lambda: _granite(
        "GraniteSpeechPlusForConditionalGeneration", "granite_speech_plus"
    ),
    "small-fun-audio-chat": _fun_chat,
    "small-moss-audio": lambda: _moss(timed=False),
    "small-moss-audio-timed": lambda: _moss(timed=True),
    "small-glm-asr": _glm_asr,
    "small-audio-flamingo-3": _flamingo,
    "small-vibevoice-asr": _vibevoice,
    "small-fun-asr": lambda: _fbank(
        "FunASRForConditionalGeneration", "qwen3", "FunASR", frontend_conf=_FRONTEND
    ),
    "small-fire-red-asr-2": lambda: _fbank(
        "FireRedASR2ForConditionalGeneration", "qwen2", "FireRedASR2",
        downsample_rate=3, means=[0.0] * 80, inverse_std_variences=[1.0] * 80,
    ),
}  # fmt: skip
"""Name -> its files."""
