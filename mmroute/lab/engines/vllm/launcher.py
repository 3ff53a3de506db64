"""How ``vllm`` is run so that it starts in seconds; see ``mmroute/lab/engines/launcher.py``.

The model's class is looked at in the first process. The picture processor is not warmed up with
the largest picture. PyTorch multiplies matrices itself, because oneDNN refuses some matrices of
towers.
"""

from __future__ import annotations

import sys


def start_quickly() -> None:
    """Leave out what takes time."""
    from vllm import _custom_ops
    from vllm.model_executor.models import registry
    from vllm.renderers.base import BaseRenderer

    registry._run_in_subprocess = lambda call: call()  # noqa: SLF001 - it has no other name
    vars(_custom_ops)["_supports_onednn"] = False
    for name in ("_warmup_mm_processor", "warmup_mm"):
        if hasattr(BaseRenderer, name):
            setattr(BaseRenderer, name, lambda *_, **__: None)
            break


def main() -> None:
    """Run the engine by its command line."""
    from vllm.entrypoints.cli.main import main as run

    sys.argv[0] = "vllm"
    run()
