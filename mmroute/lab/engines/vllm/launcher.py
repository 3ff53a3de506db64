"""Runs ``vllm`` so that it starts in seconds.

The engine's Python runs this file, without mmroute. The engine's answers stay as they are. Its
processes are forked, because each would otherwise import everything anew, and the model's class is
looked at in the first of them. The picture processor is not warmed up with the largest picture. A
torchvision without its compiled part is imported all the same. PyTorch multiplies matrices itself,
because oneDNN refuses some matrices of towers. The engine ends when its standard input ends, and so
with the program that started it.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
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


def start_quickly() -> None:
    """Fork in place of spawning, and leave the warm-up out."""
    without_compiled_torchvision()
    real = multiprocessing.get_context

    def forking(method: str | None = None) -> Any:
        return real("fork" if method == "spawn" else method)

    vars(multiprocessing)["get_context"] = forking
    from vllm import _custom_ops
    from vllm.model_executor.models import registry
    from vllm.renderers.base import BaseRenderer

    registry._run_in_subprocess = lambda call: call()  # noqa: SLF001 - it has no other name
    vars(_custom_ops)["_supports_onednn"] = False
    for name in ("_warmup_mm_processor", "warmup_mm"):
        if hasattr(BaseRenderer, name):
            setattr(BaseRenderer, name, lambda *_, **__: None)
            break


if __name__ == "__main__":
    end_with_parent()
    if sys.argv[1] == "quickly":
        start_quickly()
    sys.argv[:2] = ["vllm"]
    from vllm.entrypoints.cli.main import main

    main()
