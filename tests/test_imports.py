"""What importing mmroute does not load, nor its command line: not each of them is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from mmroute import ModelError
from mmroute.errors import needs_extra

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


def test_a_package_of_an_extra_is_missing_or_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_codec.py").write_text("raise ImportError('its part')")
    monkeypatch.syspath_prepend(tmp_path)
    messages = []
    for package in ("missing_codec", "broken_codec"):
        with pytest.raises(ModelError) as raised, needs_extra("formats", package, "x.gguf"):
            __import__(package)
        messages.append(str(raised.value))
    missing, broken = messages
    assert missing.endswith("which is not installed: pip install 'mmroute[formats]'")
    assert "which is installed and cannot be imported (its part)" in broken
