"""The length of audio after the engine has resampled it."""

from __future__ import annotations

import math

import numpy as np


def resampled_length(num_samples: int, sampling_rate: int, target_rate: int) -> int:
    """The number of samples that torchaudio's resampler makes, which is the engine's default.

    It computes the length in 32 bits, so a very small excess over a whole number is lost.

    Source: torchaudio 2.11 ``functional/functional.py`` (`_apply_sinc_resample_kernel`).

    >>> resampled_length(44100, 44100, 16000), resampled_length(44101, 44100, 16000)
    (16000, 16001)
    >>> resampled_length(397002, 44100, 16000)  # 144037.007
    144037
    """
    return math.ceil(np.float32(num_samples * target_rate / sampling_rate))
