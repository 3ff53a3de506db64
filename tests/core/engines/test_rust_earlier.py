"""Chats under the Rust frontend of vLLM 0.32.0, by the answers of both versions of it."""

from __future__ import annotations

from typing import Any

import pytest
from small_models import SMALL_MODELS, write_model

from mmroute import Normalizer
from mmroute.engines.vllm_rust.settings import RustSettings

TOOLS = [{"type": "function", "function": {"name": "f"}}]
HI = {"role": "user", "content": "Hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
CALLED = [HI, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
ARGUMENTS = "{{ messages[1].tool_calls[0].function.arguments | tojson }}"


@pytest.mark.parametrize(
    ("template", "request_fields", "earlier", "now"),
    [
        ("{{ tools is defined }}", {"tools": TOOLS, "tool_choice": "none"}, "False", "True"),
        ("{{ tools is defined }}", {"tools": TOOLS, "tool_choice": "auto"}, "True", "True"),
        ("{{ strftime_now is defined }}", {}, "False", "True"),
        ("a{{ strftime_now('%Y') if false }}", {}, "a", "a"),
        ("a{{ strftime_now('%Y') }}", {}, None, None),  # 0.33.0 writes the year of the day
        (ARGUMENTS, {"messages": CALLED}, None, "{}"),
    ],
)
def test_templates_are_rendered_as_by_the_earlier_release(
    template: str,
    request_fields: dict[str, Any],
    earlier: str | None,
    now: str | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = write_model(
        SMALL_MODELS["small-llava-1.5"](), tmp_path_factory.mktemp("models") / "m"
    )
    settings = RustSettings(chat_template=template, tool_parser="hermes", max_model_len=4096)
    api_fields = {k: v for k, v in request_fields.items() if k == "tool_choice"}
    fields = {k: v for k, v in request_fields.items() if k != "tool_choice"}
    for version, expected in (("0.32.0", earlier), ("0.33.0", now)):
        normalizer = Normalizer.from_pretrained(
            directory, backend=f"vllm=={version}", model_id="mine", engine_settings=settings
        )
        routing = normalizer.normalize(**{"messages": [HI], **fields}, api_fields=api_fields)
        decode = normalizer.model.tokenizer.decode
        found = decode(routing.token_ids.tolist()) if routing.exact else None
        assert found == expected, version
