"""Which engine answers at a server, and in which version."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mmroute.engines.running import Evidence, RunningEngine, running_engine
from mmroute.net.transport import Transport

__all__ = ["ask_engine"]

_VLLM_ROUTE: Final = "/version"  # of mmroute serve as well, which names the engine it matches
_SGLANG_ROUTE: Final = "/server_info"


def ask_engine(transport: Transport) -> RunningEngine:
    """The engine of a server as it names itself; unknown if it does not.

    Raises:
        InexactError: `remote_unavailable`: it cannot be reached.
    """
    for route, usual in ((_VLLM_ROUTE, "vllm"), (_SGLANG_ROUTE, "sglang")):
        body = transport.ask("GET", route).body
        if isinstance(body, dict) and isinstance(body.get("version"), str):
            running = running_engine(str(body.get("engine", usual)), body["version"])
            if body.get("mmroute"):
                return replace(running, mmroute=str(body["mmroute"]), evidence=Evidence.UNKNOWN)
            return running
    return running_engine("engine", "")
