"""docs/deploy.md and the dashboard name only what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]  # has no types of its own
from chat_requests import CHAT, HI
from paths import ROOT
from server_helpers import serving

from mmroute.cli import main
from mmroute.server import ModelSource

PAGE: Final = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
DASHBOARD: Final = (ROOT / "docs" / "grafana-dashboard.json").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_metrics_that_are_named_exist(small_model: Callable[[str], Path]) -> None:
    sources = [ModelSource(str(small_model("small-qwen2.5-vl")), ("a",))]
    with serving(sources) as client:
        client.post(CHAT, json={"messages": HI})
        known = set(re.findall(r"^# HELP (\w+)", client.get("/metrics").text, re.MULTILINE))
    named = set(re.findall(r"\b((?:mmroute|process)_\w+)\b", DASHBOARD + "".join(blocks("yaml"))))
    without = {re.sub(r"_(bucket|count|sum)$", "", name) for name in named}
    assert without <= known | {re.sub("_total$", "", name) for name in known}


def test_the_dashboard_is_one() -> None:
    panels = json.loads(DASHBOARD)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 5
    assert all(target["expr"] for panel in panels for target in panel["targets"])


def containers(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, dict):
        own = [value] if "image" in value else []
        return own + [found for item in value.values() for found in containers(item)]
    return (
        [found for item in value for found in containers(item)] if isinstance(value, list) else []
    )


def test_options_of_the_page_are_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [part for block in blocks("yaml") for part in yaml.safe_load_all(block)]
    found = [container for document in documents for container in containers(document)]
    assert len(found) == 2
    for container in found:
        with monkeypatch.context() as patch:
            for variable in container["env"]:
                patch.setenv(variable["name"], variable.get("value", "secret"))
            assert main(["serve", *container["args"], "--check-config"]) == 0
    (config,) = [document for document in documents if "uds" in document]
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    assert main(["serve", "--config", str(path), "--check-config"]) == 0
    monkeypatch.setenv("MMROUTE_PORT", "tcp://10.0.0.1:80")  # a service's, in Kubernetes
    assert main(["serve", "a", "--check-config"]) == 0
