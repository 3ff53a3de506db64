"""The fields that decide prompts, where vLLM's Rust frontend takes other values.

Source: vLLM ``rust/src/server/src/routes/openai/chat_completions/types.rs`` and ``validate.rs``,
the same of ``completions``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field, Strict, StrictBool, StrictStr

from mmroute.engines.vllm.bodies.fields import MAX_INT64

_Id: TypeAlias = Annotated[int, Strict(), Field(ge=0, le=2**32 - 1)]
_SHARED: Final[Mapping[str, Any]] = {
    "truncate_prompt_tokens": Annotated[int, Strict(), Field(ge=-1, le=MAX_INT64)] | None,
    "add_special_tokens": StrictBool,
}
RUST_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "/v1/chat/completions/render": {
        **_SHARED,
        "add_generation_prompt": StrictBool | None,
        "continue_final_message": StrictBool,
        "documents": list[Any] | None,
    },
    "/v1/completions/render": {
        **_SHARED,
        "prompt": StrictStr | Annotated[list[_Id], Field(fail_fast=True)],
        "suffix": None,
        "prompt_embeds": None,
    },
}
"""Path -> field -> its type."""
