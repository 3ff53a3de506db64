"""How SGLang's server is run so that it starts soon; see ``mmroute/lab/engines/launcher.py``.

Kernels are stood in for, which its index of packages does not have for a CPU.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def start_quickly() -> None:
    """Stand in for the kernels."""
    runpy.run_path(str(Path(__file__).with_name("kernels.py")))["install"]()
    from sglang.kernels.ops.attention.fla import layernorm_gated

    vars(layernorm_gated)["_use_cpu"] = True  # which it is for processors with AMX alone


def main() -> None:
    """Run the server by its command line."""
    sys.argv[0] = "sglang.launch_server"
    runpy.run_module("sglang.launch_server", run_name="__main__")
