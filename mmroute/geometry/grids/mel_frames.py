"""Audio: samples to mel frames, and frames to tokens by the strides of an encoder.

Sources: vLLM ``model_executor/models/qwen2_audio.py``, ``qwen2_5_omni_thinker.py``,
``qwen3_omni_moe_thinker.py``, ``qwen3_asr.py``, ``gemma4_mm.py``, ``ultravox.py``.
Checked with it. Divisions round down, also below zero.
"""

from __future__ import annotations

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
