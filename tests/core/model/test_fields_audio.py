"""Fields of feature extractors: what each does to an audio's tokens, as vLLM 0.33.0 answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from small_models import UNRECORDED_MODELS, Files, media_model, write_model
from small_tokenizers import special_ids

from mmroute import AudioLength, Normalizer, Reason
from mmroute.errors import NoTokenIdsError
from mmroute.model.resolve import resolve_model

_AUDIO: Final = AudioLength(200_001, 16_000)
_MISSING: Final = object()
_OWN: Final = "preprocessor_config.json"
_PROCESSOR: Final = "processor_config.json"
_CONFIG: Final = "config.json"


def _files(name: str) -> Files:
    if name in UNRECORDED_MODELS:
        return UNRECORDED_MODELS[name]()
    files = media_model(name)
    if name == "small-gemma-4":
        files[_CONFIG]["audio_config"] = {"model_type": "gemma4_audio"}
    return files


def _tokens(files: Files, folder: Path, audio: AudioLength = _AUDIO) -> list[int]:
    normalizer = Normalizer.from_pretrained(write_model(files, folder))
    chat: list[Any] = [{"role": "user", "content": [{"type": "audio"}]}]
    ids: list[int] = normalizer.normalize(messages=chat, audios=[audio]).token_ids.tolist()
    return ids


def _set(files: Files, file: str, field: str, value: Any) -> None:
    *path, last = field.split(".")
    inside = files.setdefault(file, {})
    for name in path:
        inside = inside.setdefault(name, {})
    inside.pop(last, None)
    if value is not _MISSING:
        inside[last] = value


@pytest.mark.parametrize(
    ("name", "file", "field", "value", "more"),
    [
        ("small-qwen2-audio", _OWN, "hop_length", 320, -157),
        ("small-qwen2-audio", _OWN, "chunk_length", 5, -188),
        ("small-qwen2-audio", _OWN, "padding_side", "left", -1),
        ("small-qwen2-audio", _OWN, "n_fft", 1024, 0),
        ("small-qwen2-audio", _OWN, "n_samples", None, 0),
        ("small-qwen2-audio", _OWN, "return_attention_mask", None, 0),
        ("small-qwen3-asr", _OWN, "hop_length", 320, -81),
        ("small-qwen3-asr", _OWN, "padding_side", "rightx", 0),
        ("small-qwen3-asr", _OWN, "feature_extractor_type", _MISSING, 0),
        ("small-fire-red-asr-2", _OWN, "downsample_rate", 2, 52),
        ("small-fire-red-asr-2", _OWN, "feature_extractor_type", "WhisperFeatureExtractor", 0),
    ],
)
def test_a_field_changes_tokens_as_the_engine_counts(  # noqa: PLR0917 - pytest names them
    name: str, file: str, field: str, value: object, more: int, tmp_path: Path
) -> None:
    files = _files(name)
    before = len(_tokens(files, tmp_path / "before"))
    _set(files, file, field, value)
    assert len(_tokens(files, tmp_path / "after")) - before == more


@pytest.mark.parametrize(
    ("name", "file", "field", "value"),
    [
        *(
            ("small-qwen2-audio", _OWN, field, None)
            for field in (
                "chunk_length",
                "dither",
                "feature_size",
                "hop_length",
                "n_fft",
                "padding_side",
                "padding_value",
                "sampling_rate",
            )
        ),
        ("small-qwen2-audio", _OWN, "padding_side", "rightx"),
        ("small-qwen2-audio", _OWN, "feature_extractor_type", "WhisperFeatureExtractorFast"),
        ("small-qwen2-audio", _OWN, "feature_extractor_type", "NoSuchFeatureExtractor"),
        ("small-qwen2-audio", _CONFIG, "feature_extractor_type", "Qwen3ASRFeatureExtractor"),
        ("small-qwen3-asr", _OWN, "sampling_rate", 8000),
        ("small-gemma-4", _PROCESSOR, "feature_extractor.hop_length_ms", None),
        ("small-gemma-3n", _OWN, "padding_side", "rightx"),
        ("small-gemma-4", _PROCESSOR, "audio_ms_per_token", None),
        ("small-gemma-4", _PROCESSOR, "feature_extractor.padding_value", None),
        ("small-qwen2.5-omni", _OWN, "sampling_rate", 32000),
        ("small-qwen3-omni", _OWN, "sampling_rate", 32000),
        ("small-moss-audio", _PROCESSOR, "mel_config.mel_dim", None),
        ("small-granite-speech", _OWN, "feature_size", None),
        ("small-fire-red-asr-2", _OWN, "num_mel_bins", 64),
        ("small-fire-red-asr-2", _OWN, "sampling_rate", 8000),
        ("small-fire-red-asr-2", _OWN, "feature_size", None),
        ("small-moss-transcribe-diarize", _PROCESSOR, "audio_merge_size", 8),
    ],
)
def test_audio_is_not_covered_where_the_engine_fails_on_it(
    name: str, file: str, field: str, value: object, tmp_path: Path
) -> None:
    """It does not start, or refuses every audio."""
    files = _files(name)
    if file == _CONFIG:
        del files[_OWN]["feature_extractor_type"]
    _set(files, file, field, value)
    named = field.rpartition(".")[2].removesuffix("_type")
    with pytest.raises(NoTokenIdsError, match=named) as caught:
        _tokens(files, tmp_path)
    assert caught.value.reason is Reason.UNSUPPORTED_MODALITY


@pytest.mark.parametrize(
    ("left", "right", "tokens"), [(3, 3, 25), (3, 2, 24), (3, 0, 24), (0, 0, 23), (3, 5, 25)]
)
def test_frames_beyond_the_context_make_no_token(
    left: int, right: int, tokens: int, tmp_path: Path
) -> None:
    """Of 97 frames: the mask of FireRedASR2FeatureExtractor, computed with its own lines."""
    files = _files("small-fire-red-asr-2")
    files[_OWN] |= {"downsample_rate": 1, "left_context": left, "right_context": right}
    audio = AudioLength(400 + 96 * 160, 16_000)
    assert _tokens(files, tmp_path, audio).count(_audio_id(files)) == tokens


@pytest.mark.parametrize(
    ("fields", "samples", "tokens"), [({}, 100, 7), ({"min_length": 16000}, 100, 13)]
)
def test_qwen3_asr_fills_short_audio_up(
    fields: dict[str, int], samples: int, tokens: int, tmp_path: Path
) -> None:
    """With the class of its own, which it has without a name; Whisper's class refuses it."""
    files = _files("small-qwen3-asr")
    with pytest.raises(NoTokenIdsError, match="too short"):
        _tokens(files, tmp_path / "whisper", AudioLength(samples, 16_000))
    del files[_OWN]["feature_extractor_type"]
    files[_OWN] |= fields
    filled = _tokens(files, tmp_path / "own", AudioLength(samples, 16_000))
    assert filled.count(_audio_id(files)) == tokens


def _audio_id(files: Files) -> int:
    return special_ids(files["tokenizer.json"])["<|AUDIO|>"]


@pytest.mark.parametrize("part", ["image_processor", "video_processor", "feature_extractor"])
def test_muse_spark_reads_one_file_alone(part: str, tmp_path: Path) -> None:
    """vLLM takes its values from processor_config.json and no other; transformers is not asked."""
    files = _files("small-muse-spark")
    moved = files[_PROCESSOR].pop(part)
    defaults = _grids(files, tmp_path / "without")
    files |= {_OWN: moved, "video_preprocessor_config.json": moved}
    assert _grids(files, tmp_path / "beside") == defaults


def _grids(files: Files, folder: Path) -> list[object]:
    media = resolve_model(str(write_model(files, folder))).media
    return [rules.geometry.grid for rules in media.values()]


def test_a_context_length_that_no_file_gives_is_the_class_own(tmp_path: Path) -> None:
    files = _files("small-qwen3-asr")
    _set(files, _CONFIG, "thinker_config", _MISSING)
    assert resolve_model(str(write_model(files, tmp_path))).max_model_len == 128000
