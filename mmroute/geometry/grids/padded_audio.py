"""Voxtral: audio that is filled up to whole chunks, each of which has a fixed number of tokens.

The renderer, mistral-common, has put the tokens into the prompt. It resamples with another library
than the engine, which looks for the tokens, so the lengths of both may differ by a sample.

Sources: mistral-common ``tokens/tokenizers/audio.py``; vLLM
``model_executor/models/voxtral.py`` and ``transformers_utils/processors/voxtral.py``. Checked with
both.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmroute.errors import InexactError, Reason, item_refused
from mmroute.geometry.grid import CachePlan, Count, OneByOne
from mmroute.geometry.resampling import resampled_length
from mmroute.requests.items import AudioLength


@dataclass(frozen=True, slots=True)
class PaddedAudio(OneByOne[AudioLength]):
    """Fills an audio up to whole chunks, and counts the tokens of the chunks."""

    sampling_rate: int
    frame_rate: float
    chunk_seconds: float
    hop_length: int

    def __post_init__(self) -> None:
        """Check that the renderer counts the tokens of a chunk as the engine does."""
        samples = self._chunk
        frames = -(-(samples - self.hop_length + 1) // self.hop_length)
        per_token = int(self.sampling_rate // self.frame_rate) // self.hop_length
        if not per_token or -(-frames // per_token) != self._tokens(1):
            raise ValueError(
                "a chunk that mistral-common and the engine count alike, unlike that of "
                f"sampling_rate {self.sampling_rate}, frame_rate {self.frame_rate} and hop_length "
                f"{self.hop_length}"
            )

    def largest_item(self, plan: CachePlan) -> int:
        return plan.max_model_len

    @property
    def _chunk(self) -> int:
        return int(self.chunk_seconds * self.sampling_rate)

    def _tokens(self, chunks: float) -> int:
        return int(-(-chunks * self._chunk // (self.sampling_rate // self.frame_rate)))

    def count(self, audio: AudioLength) -> Count:
        if audio.needs_ffmpeg:
            raise item_refused(audio, "mistral-common cannot read its file with libsndfile")
        if audio.channels != 1:
            raise item_refused(audio, f"mistral-common takes one channel, not {audio.channels}")
        samples = resampled_length(audio.num_samples, audio.sampling_rate, self.sampling_rate)
        slack = audio.sampling_rate != self.sampling_rate
        fewest, most = (-(-(samples + by) // self._chunk) for by in (-slack, slack))
        if fewest != most or not fewest:
            raise InexactError(
                Reason.AUDIO_NOT_PREDICTABLE,
                f"{audio}: where a chunk of {self.chunk_seconds:g} seconds ends, the engine and "
                "mistral-common may count differently after resampling",
            )
        return Count(whole=self._tokens(fewest))
