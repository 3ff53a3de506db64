"""Python's search for garbage, while a process loads a model."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_searched() -> Iterator[None]:
    """Search for no garbage while a program loads a model, nor in the model later."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()
