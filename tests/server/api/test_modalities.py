"""Bodies with a modality that the engine takes and mmroute does not, or that no one takes."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest

from mmroute import Normalizer, Reason
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.server.engines.vllm import ApiError, LoadedModel, answer_body

UNCOVERED: Final = {
    "small-cosmos3-edge": "video",
    "small-dots3-note": "video",
    "small-internvl-chat": "video",
    "small-keye": "video",
    "small-kimi-k2.5": "video",
    "small-minicpm-v-4.6": "video",
    "small-minicpm-v-4.7": "video",
    "small-molmo2": "video",
    "small-muse-glimmer": "video",
    "small-nemotron-nano-vl": "audio",
    "small-nemotron-omni": "video",
}


def refusal(directory: Path, modality: str) -> ApiError:
    settings = VllmSettings.from_args("vllm serve a")
    normalizer = Normalizer.from_pretrained(directory, engine_settings=settings)
    kind = f"{modality}_url"
    part = {"type": kind, kind: {"url": "data:,"}}
    body: dict[str, Any] = {"model": "a", "messages": [{"role": "user", "content": [part]}]}
    with pytest.raises(ApiError) as refused:
        answer_body(LoadedModel.of(normalizer, "a"), "/v1/chat/completions/render", body)
    assert refused.value.reason is Reason.UNSUPPORTED_MODALITY
    return refused.value


@pytest.mark.parametrize(("name", "modality"), UNCOVERED.items())
def test_what_the_engine_takes_is_not_refused_in_its_name(
    small_model: Callable[[str], Path], name: str, modality: str
) -> None:
    error = refusal(small_model(name), modality)
    assert error.status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert f"{modality}s are not covered" in error.message


def test_a_video_that_another_processor_reads_is_not_covered(
    changed_model: Callable[..., Path],
) -> None:
    def read_otherwise(files: Any) -> None:
        files["video_preprocessor_config.json"] = {"video_processor_type": "Glm4vVideoProcessor"}

    error = refusal(changed_model("small-qwen3-vl", read_otherwise), "video")
    assert error.status == HTTPStatus.UNPROCESSABLE_ENTITY
