"""Answers with only the fields that routers read, beside the full ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from chat_requests import CHAT, COMPLETION, HI, picture, user
from server_helpers import answers_to, error_of, posted, serving
from server_vectors import HARMONY_MODEL, SERVED_NAMES, START_DATE, requests_to, served_files
from small_models import write_model

from mmroute.engines.vllm.settings import VllmSettings
from mmroute.server import ModelSource, ServerSettings
from mmroute.server.models import Models
from mmroute.server.settings import AnswerFields

QWEN: Final = "small-qwen2.5-vl"
KEPT: Final = ("token_ids", "features", "inexact")


def kept(answer: Any) -> Any:
    """What an answer with the fields of routers has of a full one."""
    if isinstance(answer, list):
        return [kept(one) for one in answer]
    if "token_ids" not in answer:  # an error
        return answer
    skips = (answer["sampling_params"] or {}).get("skip_reading_prefix_cache")
    reads_no_cache = {"reads_cache": False} if skips else {}
    return {name: answer[name] for name in KEPT if name in answer} | reads_no_cache


@pytest.mark.parametrize("name", [QWEN, HARMONY_MODEL])
def test_the_same_requests_are_answered_and_refused(tmp_path: Path, name: str) -> None:
    every = [
        c for c in requests_to(name) if c.path.endswith("/render") and isinstance(c.body, dict)
    ]
    renders = every[::5]
    directory = str(write_model(served_files(name), tmp_path / "model"))
    engine = VllmSettings.from_args(f"VLLM_SYSTEM_START_DATE={START_DATE}")
    source = ModelSource(directory, SERVED_NAMES, engine_settings=engine)
    settings = ServerSettings(request_timeout=600)
    with serving([source], settings) as client:
        full, short = (
            answers_to(client, [posted(f"{c.path}?fields={fields}", c.body) for c in renders])
            for fields in AnswerFields
        )
    answered = 0
    for whole, part in zip(full, short, strict=True):
        assert part.status_code == whole.status_code
        assert part.json() == kept(whole.json())
        answered += part.status_code == 200
    assert 10 < answered < len(full)


def test_hashes_beside_them_and_a_wrong_choice(models: Models) -> None:
    body = {"messages": user(picture(64, 48), {"type": "text", "text": "what is this " * 9})}
    with serving(models, ServerSettings(fields=AnswerFields.TOKENS)) as client:
        short = client.post(f"{CHAT}?block_size=8", json=body).json()
        whole = client.post(f"{CHAT}?block_size=8&fields=all", json=body).json()
        prompts = client.post(COMPLETION, json={"prompt": ["a", "b"]}).json()
        refused = client.post(f"{CHAT}?fields=ids", json={"messages": HI})
    assert list(short) == ["token_ids", "features", "block_hashes"]
    assert short == {name: whole[name] for name in short}
    assert whole["sampling_params"]
    assert [list(prompt) for prompt in prompts] == [["token_ids", "features"]] * 2
    assert error_of(refused) == (400, "BadRequestError", "fields")
