"""Frames or pairs of frames, each with its time as text: Qwen3-VL, GLM-V, Gemma 4, MiniMax-M3.

Audio in rows: MiniCPM-o, MOSS-Audio, MOSS-Transcribe-Diarize.

Sources: vLLM ``model_executor/models/qwen3_vl.py``, ``glm4_1v.py``, ``gemma4_mm.py``,
``moss_audio.py`` and ``transformers_utils/processors/minimax_m3.py``. Checked with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmroute.errors import item_refused
from mmroute.geometry.grid import Count
from mmroute.geometry.layout import Words
from mmroute.geometry.layouts.runs import Run, joined_runs
from mmroute.geometry.replacement import ModelContext, Replacement
from mmroute.requests.items import VideoSize


@dataclass(frozen=True, slots=True)
class Timed:
    """Writes one row for each frame or pair of frames, with its time as text.

    Two rows (f: the features of one) are ``opening time before f after time before f after
    closing``; where the time does not come first, it stands behind each ``after``.

    Attributes:
        fill: the token of a feature position.
        time: the text for the time of a row, with ``{seconds}``, or with ``{minutes}`` and
            ``{second}``.
        next_time: the text for all rows but the first. None: that of `time`.
        time_first: whether the time comes before its row.
        time_without_cache: whether only an engine without a processor cache writes the time. With
            one, vLLM loses the times of MiniMax-M3's frames on the way to the processor.
        before: the tokens before the features of a row.
        after: the tokens behind the features of a row.
        opening: the tokens in front of the item.
        closing: the tokens behind the item.
    """

    fill: int
    time: str
    next_time: str | None = None
    time_first: bool = True
    time_without_cache: bool = False
    before: Words = ()
    after: Words = ()
    opening: Words = ()
    closing: Words = ()

    def replacement(
        self, count: Count, video: VideoSize, _: int, context: ModelContext
    ) -> Replacement:
        if self.time_without_cache and not context.processor_cache_off:
            runs = [Run(self.before, count.tile, self.after)] * count.rows
        elif len(count.times) != count.rows:
            raise item_refused(video, "its frame rate is unknown")
        else:
            runs = [self._run(row, count, context) for row in range(count.rows)]
        return joined_runs(self.fill, runs, opening=self.opening, closing=self.closing)

    def _run(self, row: int, count: Count, context: ModelContext) -> Run:
        template = self.time if not row or self.next_time is None else self.next_time
        at = count.times[row]
        text = template.format(seconds=at, minutes=int(at // 60), second=int(at % 60))
        time: Words = tuple(context.encode(text).tolist())
        if self.time_first:
            return Run(time + self.before, count.tile, self.after)
        return Run(self.before, count.tile, self.after + time)


@dataclass(frozen=True, slots=True)
class AudioRows:
    """Writes one row for each stretch of an audio, with its time as text, and then the rest.

    Attributes:
        fill: the token of a feature position.
        before: the tokens before the features of a row, and before the features that are left.
        after: the tokens behind these features.
        time: the text behind a row, with ``{seconds}`` for its time.
        opening: the tokens in front of the item.
        closing: the tokens behind the item.
    """

    fill: int
    before: Words = ()
    after: Words = ()
    time: str = ""
    opening: Words = ()
    closing: Words = ()

    def replacement(
        self, count: Count, _item: object, _number: int, context: ModelContext
    ) -> Replacement:
        times = [tuple(context.encode(self.time.format(seconds=at)).tolist()) for at in count.times]
        ends = [self.after + time for time in times] or [self.after] * count.rows
        runs = [Run(self.before, count.tile, end) for end in ends]
        if count.whole:
            runs.append(Run(self.before, count.whole, self.after))
        return joined_runs(self.fill, runs, opening=self.opening, closing=self.closing)
