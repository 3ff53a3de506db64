"""What importing mmroute does not load, nor its command line: not each of them is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest

# The request path needs neither transformers nor torch, nor mistral-common for most models.
RARELY_NEEDED: Final = {
    "transformers", "torch", "mistral_common", "PIL", "huggingface_hub", "httpcore", "ssl",
}  # fmt: skip
OF_EXTRAS: Final = {
    "grpc", "google.protobuf", "httptools", "mmroute.server", "orjson", "prometheus_client", "zmq",
}  # fmt: skip


@pytest.mark.process
def test_importing_is_light() -> None:
    code = (
        "import json, sys, mmroute; print(json.dumps([*sys.modules]));"
        "import mmroute.cli, mmroute.kv_events; print(json.dumps([*sys.modules]))"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    first, all_of_them = (set(json.loads(line)) for line in printed.splitlines())
    assert "mmroute.normalizer" in first
    assert not first & RARELY_NEEDED
    assert "mmroute.kv_events" in all_of_them
    assert not all_of_them & OF_EXTRAS
