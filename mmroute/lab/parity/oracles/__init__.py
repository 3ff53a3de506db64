"""The oracles: vLLM, transformers, a server, and a file of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mmroute.errors import Reason, did_you_mean
from mmroute.lab.parity.cases import Oracle
from mmroute.lab.parity.oracles.common import OracleError
from mmroute.model_directory import find_model

__all__ = ["ORACLES", "OracleError", "find_oracle"]

ORACLES: Final = ("vllm", "transformers")
"""The names of oracles that have one; a server has a URL, and a file of vectors a path."""

_SCHEMES: Final = ("http://", "https://")
_TYPED_ALIKE: Final = 0.75
_VECTORS: Final = ".jsonl"


def find_oracle(
    against: str,
    model: str,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    served_model: str | None = None,
    api_key: str | None = None,
) -> Oracle:
    """An oracle by its name, URL or path."""
    if against.startswith(_SCHEMES):
        from mmroute.lab.parity.oracles.http import HttpOracle  # loads httpcore

        return HttpOracle(against, served_model=served_model, api_key=api_key)
    if against in ORACLES:
        files = find_model(model, revision=revision)
        if against == "vllm":
            from mmroute.lab.parity.oracles.vllm import VllmOracle

            return VllmOracle(files, trust_remote_code=trust_remote_code)
        if not files.has("config.json"):
            raise OracleError(
                f"no processor reads {model}, which is in Mistral's format: --against vllm, or the "
                "URL of a server"
            )
        from mmroute.lab.parity.oracles.transformers import TransformersOracle

        return TransformersOracle(files, trust_remote_code=trust_remote_code)
    path = Path(against).expanduser()
    if path.is_file():
        from mmroute.lab.parity.oracles.vectors import VectorsOracle

        return VectorsOracle(path)
    if path.suffix == _VECTORS or len(path.parts) > 1:
        raise OracleError(f"there is no file {against}", Reason.MISSING_FILE)
    near = did_you_mean(against.lower(), (*ORACLES, f"http://{against}"), cutoff=_TYPED_ALIKE)
    raise OracleError(
        f"there is no oracle {against!r}{near or '.'} "
        f"An oracle is {', '.join(ORACLES)}, the URL of a vLLM server, or the path of a vector file"
    )
