"""Limits of processor time on a machine on which others work as well."""

from __future__ import annotations

import gc
import json
import time
from typing import Final

_WORK: Final = "[" + ",".join(['{"a":[1],"b":"c"}'] * 55_000) + "]"
_TAKES: Final = 0.009  # seconds on a free processor, an AMD EPYC


def at_present(seconds: float) -> float:
    """The seconds that work takes now which takes so many on a free processor.

    Others who use the memory and the caches of a processor lengthen its work, beside waiting times.
    """
    gc.disable()
    try:
        began = time.thread_time()
        json.loads(_WORK)
        return seconds * max(1.0, (time.thread_time() - began) / _TAKES)
    finally:
        gc.enable()
