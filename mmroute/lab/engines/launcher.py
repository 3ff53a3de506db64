"""Runs an engine that ends with the program that started it.

The engine's Python runs this file, without mmroute: ``launcher.py FILE HOW WORD ...``. FILE is the
engine's own launcher, whose `main` starts it by the words of its command line. Where HOW is
``quickly``, its `start_quickly` is called before, a torchvision without its compiled part is
imported all the same, and processes are forked, because each would otherwise import everything
anew. The engine's answers stay as they are.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import runpy
import signal
import sys
import threading
from typing import Any

KEPT: list[object] = []  # what lives as long as the process


def end_with_parent() -> None:
    """Kill all processes of the engine once standard input ends."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def without_compiled_torchvision() -> None:
    """Declare the operators of torchvision that its Python part wants, if its own are missing."""
    import torch

    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        KEPT.append(library)
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def fork() -> None:
    """Fork in place of spawning."""
    real = multiprocessing.get_context

    def forking(method: str | None = None) -> Any:
        return real("fork" if method == "spawn" else method)

    vars(multiprocessing)["get_context"] = forking
    vars(multiprocessing)["set_start_method"] = lambda *_, **__: None


if __name__ == "__main__":
    end_with_parent()
    del sys.path[0]  # this directory has folders with the names of engines
    own, how = sys.argv[1:3]
    del sys.argv[1:3]
    engine = runpy.run_path(own)
    if how == "quickly":
        without_compiled_torchvision()
        fork()
        engine["start_quickly"]()
    engine["main"]()
