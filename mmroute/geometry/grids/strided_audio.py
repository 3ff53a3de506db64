"""Audio: mel frames, of which the strides of an encoder or steps of a processor keep some.

Divisions round down, also below zero. Sources: vLLM ``model_executor/models/qwen2_audio.py``,
``qwen2_5_omni_thinker.py``, ``qwen3_omni_moe_thinker.py``, ``qwen3_asr.py``, ``gemma4_mm.py``,
``ultravox.py``, ``granite_speech.py``, ``glmasr.py``, ``glmasr_utils.py``, ``audioflamingo3.py``,
``funaudiochat.py``, ``moss_audio.py``, ``moss_transcribe_diarize.py``, ``midashenglm.py``,
``model_executor/models/transformers/multimodal.py``, ``transformers_utils/processors/funasr.py``,
``fireredasr2.py`` and ``minicpmo.py``, ``models/inkling/common/mm_preprocess.py``; transformers
``models/granite_speech/feature_extraction_granite_speech.py``,
``models/inkling/feature_extraction_inkling.py`` and
``models/vibevoice_asr/processing_vibevoice_asr.py``. Checked with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mmroute.errors import InexactError, Reason, item_refused
from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.geometry.replacement import ModelContext
from mmroute.geometry.resampling import resampled_length
from mmroute.requests.items import AudioLength

_MOST_PLANNED: Final = 30  # seconds of the audio that the engine plans with
_CHUNK: Final = 3000  # frames that Ultravox's encoder takes at once


Encoder: TypeAlias = Literal["halved", "chunked", "subsampled", "stacked"]


@dataclass(frozen=True, slots=True)
class MelFrames(OneByOne[AudioLength]):
    """Counts the mel frames of an audio, and the tokens that the encoder makes of them."""

    sampling_rate: int
    encoder: Encoder
    hop_length: int = 0
    partial_frame: bool = False
    window: int = 0
    filled_to: int = 0
    half_block: int = 0
    max_seconds: int | None = None
    padded_seconds: int | None = None
    chunk_seconds: int = _MOST_PLANNED
    planned_chunks: int | None = None
    planned_encoder: Encoder | None = None
    padding_side: Literal["left", "right"] = "right"
    max_tokens: int = 0

    def largest_item(self, _: CachePlan) -> int:
        if self.max_tokens:
            return self.max_tokens
        if self.planned_chunks:
            return self._tokens(self.planned_chunks * self.chunk_seconds * self.sampling_rate)
        samples = min(self.chunk_seconds, _MOST_PLANNED) * self.sampling_rate
        if self.planned_encoder:
            return _TOKENS[self.planned_encoder](samples // self.hop_length)
        return self._tokens(samples)

    def counts(self, items: Sequence[AudioLength], _: ModelContext) -> Iterable[Count]:
        most = (self.padded_seconds or 0) * self.sampling_rate
        if most and len(items) > 1 and any(self._samples(audio) > most for audio in items):
            raise InexactError(
                Reason.AUDIO_NOT_PREDICTABLE,
                f"one of {len(items)} audios is longer than the {self.padded_seconds} seconds that "
                "they are filled up to",
            )
        return map(self.count, items)

    def count(self, audio: AudioLength) -> Count:
        samples = self._samples(audio)
        tokens = self._tokens(samples)
        filled = self._frames(samples) * self.hop_length if self.partial_frame else samples
        if filled <= self.window // 2 or (tokens < 1 and self.encoder != "subsampled"):
            raise item_refused(audio, "it is too short to have a token")
        return Count(whole=max(0, tokens))

    def mel_frames(self, audio: AudioLength) -> int:
        return self._frames(self._samples(audio))

    def chunk_frames(self, audio: AudioLength) -> list[int]:
        whole, rest = divmod(self.mel_frames(audio), _CHUNK)
        return [_CHUNK] * whole + [rest] * bool(rest)

    def chunks(self, audio: AudioLength) -> int:
        return len(self.chunk_frames(audio))

    def mel_mask(self, audio: AudioLength) -> list[int]:
        ones = [1] * self.mel_frames(audio)
        most = (self.padded_seconds or 0) * self.sampling_rate // self.hop_length
        if self.half_block:
            most = len(ones) + -len(ones) % (2 * self.half_block)
        zeros = [0] * (most - len(ones))
        return zeros + ones if self.padding_side == "left" else ones + zeros

    def _samples(self, audio: AudioLength) -> int:
        samples = resampled_length(audio.num_samples, audio.sampling_rate, self.sampling_rate)
        return max(samples, self.filled_to)

    def _tokens(self, samples: int) -> int:
        tokens = _TOKENS[self.encoder](self._frames(samples))
        return min(tokens, self.max_tokens) if self.max_tokens else tokens

    def _frames(self, samples: int) -> int:
        if self.encoder == "subsampled":
            frame, hop = (round(self.sampling_rate * ms / 1000) for ms in (20, 10))
            return max(0, (samples + frame // 2 - frame - 1) // hop + 1)
        most = (self.max_seconds or self.padded_seconds or 0) * self.sampling_rate
        if self.max_seconds:
            samples = min(samples, most)
        if samples <= most:
            return masked_frames(samples, most, self.hop_length, self.padding_side)
        whole, rest = divmod(samples, self.hop_length)
        return whole + bool(self.partial_frame and rest)


def masked_frames(samples: int, most: int, hop_length: int, side: Literal["left", "right"]) -> int:
    """The frames of an audio in the mask of a WhisperFeatureExtractor that fills it up.

    Source: transformers ``models/whisper/feature_extraction_whisper.py`` (`__call__`).
    """
    if side == "left":
        return most // hop_length + (samples - most) // hop_length
    return min(-(-samples // hop_length), most // hop_length)


def _chunked(frames: int) -> int:
    rest = (frames % 100 - 1) // 2 + 1
    rest = (rest - 1) // 2 + 1
    return (rest - 1) // 2 + 1 + 13 * (frames // 100)


def _stacked(frames: int) -> int:
    chunks, rest = divmod(frames, _CHUNK)
    return chunks * -(-_CHUNK // 16) + -(-rest // 16)


_TOKENS: Final[Mapping[Encoder, Callable[[int], int]]] = {
    "halved": lambda frames: ((frames - 1) // 2 - 1) // 2 + 1,
    "chunked": _chunked,
    "subsampled": lambda frames: -(-frames // 4),
    "stacked": _stacked,
}


_STEMS: Final[Mapping[bool | None, int]] = {None: 1, False: 2, True: 8}


@dataclass(frozen=True, slots=True)
class StridedAudio(OneByOne[AudioLength]):
    """Counts the frames of an audio, and the tokens that strides and stacking leave of them."""

    sampling_rate: int
    hop_length: int = 1
    hop_factors: tuple[int, ...] = ()
    hop_seconds: float = 0
    stem: bool | None = None
    steps: tuple[tuple[int, int, int], ...] = ()
    frames: Literal["begun", "centred", "whole", "rated"] = "begun"
    frame_rate: int = 0
    window: int = 0
    stacked: int = 1
    merged: int = 1
    block: int = 1
    per_token: int = 1
    least: int = 0
    max_tokens: int = 0
    min_samples: int = 1
    fills_up: bool = False
    chunk_seconds: int = 0
    padding_side: Literal["left", "right"] | None = None
    max_seconds: int = 0
    each_chunk: bool = False
    row_tokens: int = 0
    row_seconds: int = 0
    timed: bool = True
    token_rate: float = 0
    left_context: int = 3
    right_context: int = 3
    planned_tokens: int = 0
    planned_samples: int = 0
    planned_seconds: int = 0
    planned_hop_factors: tuple[int, ...] = ()
    planned_within_context: bool = False

    def largest_item(self, plan: CachePlan) -> int:
        samples = self.planned_samples or self.planned_seconds * self.sampling_rate
        tokens = self.planned_tokens or self._tokens(samples)
        if self.planned_hop_factors:
            tokens = -(-samples // math.prod(self.planned_hop_factors))
        return min(tokens, plan.max_model_len) if self.planned_within_context else tokens

    def mel_frames(self, audio: AudioLength) -> int:
        return self._frames(self.samples(audio))

    def frame_mask(self, audio: AudioLength) -> list[int]:
        ones = [1] * max(self.least, self.mel_frames(audio))
        return ones + [0] * (-len(ones) % self.stacked)

    def chunks(self, audio: AudioLength) -> int:
        chunks = -(-self.samples(audio) // (self.chunk_seconds * self.sampling_rate))
        return min(chunks, self.max_seconds // self.chunk_seconds) if self.max_seconds else chunks

    def samples(self, audio: AudioLength) -> int:
        return resampled_length(audio.num_samples, audio.sampling_rate, self.sampling_rate)

    def count(self, audio: AudioLength) -> Count:
        samples = self.samples(audio)
        if self.fills_up:
            samples = max(samples, self.min_samples)
        tokens = max(self.least, self._tokens(samples))
        reflected = self.window // 2 if self.frames == "centred" else 0
        if samples < self.min_samples or samples <= reflected or tokens < 1:
            raise item_refused(audio, "it is too short to have a token")
        if self.max_tokens and tokens > self.max_tokens:
            raise item_refused(audio, f"it has {tokens} tokens, and may have {self.max_tokens}")
        return self._in_rows(tokens)

    def _in_rows(self, tokens: int) -> Count:
        row = self.row_tokens
        rows = tokens // row if row else 0
        times: list[int] = []
        if self.row_seconds and self.timed:
            hops = math.prod([self.hop_length, *(stride for _, _, stride in self.steps)])
            rate = self.token_rate or self.sampling_rate / hops
            row = int(rate * self.row_seconds)
            rows = int(tokens / rate) // self.row_seconds
            times = [self.row_seconds * (n + 1) for n in range(rows)]
        if not rows:
            return Count(whole=tokens)
        return Count(rows, 1, row, tokens - rows * row, tuple(times))

    def _tokens(self, samples: int) -> int:
        if not self.chunk_seconds:
            return self._after_steps(self._frames(samples))
        chunk = self.chunk_seconds * self.sampling_rate
        if self.max_seconds:
            samples = min(samples, self.max_seconds // self.chunk_seconds * chunk)
        whole, rest = divmod(samples, chunk)
        if self.each_chunk:
            tokens = whole * self._after_steps(self._frames(chunk))
            return tokens + (self._after_steps(self._frames(rest)) if rest else 0)
        return self._after_steps(whole * self._frames(chunk) + self._frames(rest))

    @property
    def _hop(self) -> int:
        """The number of samples from one frame to the next."""
        return round(self.hop_seconds * self.sampling_rate) or self.hop_length

    def _frames(self, samples: int) -> int:
        hop = self._hop * math.prod(self.hop_factors) * _STEMS[self.stem]
        match self.frames:
            case "begun" if self.padding_side and samples:
                chunk = self.chunk_seconds * self.sampling_rate
                return masked_frames(samples, chunk, hop, self.padding_side)
            case "begun":
                return -(-samples // hop)
            case "centred":
                return samples // hop + 1
            case "rated":
                return int(samples / self.sampling_rate * self.frame_rate)
        return max(0, (samples - self.window) // hop + 1)

    def _after_steps(self, frames: int) -> int:
        frames = -(-frames // self.stacked) - max(0, 6 - self.left_context - self.right_context)
        for padding, kernel, stride in self.steps:
            frames = (frames + 2 * padding - kernel) // stride + 1
        positions = max(0, frames) // self.merged
        return -(-positions // self.block) * (self.block // self.per_token)
