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
from mmroute.geometry.layouts.framed import filled
from mmroute.geometry.layouts.runs import Run, joined_runs
from mmroute.geometry.replacement import ModelContext, Replacement


@dataclass(frozen=True, slots=True)
class Timed:
    """Writes one row for each frame, pair of frames or stretch of an audio, and then the rest.

    Two rows (f: the features of one) are ``opening time before f after time before f after
    closing``; where the time does not come first, it stands behind each ``after``. Without a text
    for it, rows have no time. The rest stands between ``before`` and ``after``.
    """

    fill: int
    time: str = ""
    next_time: str | None = None
    time_first: bool = True
    time_without_cache: bool = False
    before: Words = ()
    after: Words = ()
    opening: Words = ()
    closing: Words = ()

    def replacement(self, count: Count, item: object, _: int, context: ModelContext) -> Replacement:
        features = count.rows * count.tile + count.whole
        if features >= context.max_model_len:  # refused whatever the words are, which take long
            return Replacement(filled(self.fill, features))
        if not self.time or (self.time_without_cache and not context.processor_cache_off):
            runs = [Run(self.before, count.tile, self.after)] * count.rows
        elif len(count.times) != count.rows:
            raise item_refused(item, "its frame rate is unknown")
        else:
            runs = [self._run(row, count, context) for row in range(count.rows)]
        if count.whole:
            runs.append(Run(self.before, count.whole, self.after))
        return joined_runs(self.fill, runs, opening=self.opening, closing=self.closing)

    def _run(self, row: int, count: Count, context: ModelContext) -> Run:
        template = self.time if not row or self.next_time is None else self.next_time
        at = count.times[row]
        text = template.format(seconds=at, minutes=int(at // 60), second=int(at % 60))
        time: Words = tuple(context.encode(text).tolist())
        if self.time_first:
            return Run(time + self.before, count.tile, self.after)
        return Run(self.before, count.tile, self.after + time)
