"""What SGLang did of requests before 0.5.23, put as requests to the newest version.

Source: SGLang 0.5.20, 0.5.21 and 0.5.22 ``srt/entrypoints/openai/protocol.py``,
``srt/managers/tokenizer_manager.py`` (`_tokenize_texts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mmroute.errors import ModelError, Reason, invalid, quoted
from mmroute.requests.request import Request

if TYPE_CHECKING:
    from mmroute.model_directory import ModelFiles

# Model types and names whose tokenizers transformers 5.12.1 reads by other classes than 5.19.0.
# Source: transformers ``models/auto/tokenization_auto.py``.
OTHER_TOKENIZERS: Final = frozenset({
    "aria", "ernie4_5", "ernie4_5_moe", "flex_olmo", "gpt_bigcode", "gte", "hunyuan_vl",
    "hyperclovax", "hyperclovax_vision_v2", "kimi_k25", "kimi_linear", "mimo_v2_flash", "minicpm3",
    "minicpmv4_7", "modernbert-decoder", "olmo2", "paddleocr_vl", "persimmon", "qwen3_5",
    "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen4_exp", "smolvlm", "stablelm", "zaya",
})  # fmt: skip
OTHER_NAMES: Final = (
    "deepseek-ai/deepseek-r1-distill-llama-", "deepseek-ai/deepseek-coder-", "stepfun-ai/step-3.7-",
)  # fmt: skip
# The order in which the fields of a tool's function were written.
_FUNCTION: Final = ("description", "name", "parameters", "strict", "defer_loading")


def with_whole_tools(request: Request) -> Request:
    """Before 0.5.23 tools were shown with all fields, in one order.

    Some values of its fields were not known, and ``prefix`` of a message was not read.
    """
    if request.reasoning_effort == "ultra":
        raise invalid("this version of SGLang has no reasoning_effort 'ultra'")
    messages: object = request.messages
    if isinstance(messages, Sequence) and not isinstance(messages, str):
        request = request._replace(messages=[_message(message) for message in messages])
    tools: object = request.tools
    if isinstance(tools, list):
        request = request._replace(tools=[_tool(tool) for tool in tools])
    return request


def with_text(request: Request) -> Request:
    """Before 0.5.22 an empty text was refused."""
    if request.prompt == "":
        raise invalid("this version of SGLang refuses an empty text")
    return with_whole_tools(request)


def check_tokenizer(files: ModelFiles) -> None:
    """Refuse models whose tokenizers were read otherwise before 0.5.22."""
    model_type = files.object("config.json").get("model_type")
    if model_type in OTHER_TOKENIZERS or files.name.lower().startswith(OTHER_NAMES):
        raise ModelError(
            Reason.UNSUPPORTED_TOKENIZER,
            f"{files.name}: transformers 5.12.1, which SGLang has before 0.5.22, reads the "
            f"tokenizer of {quoted(model_type)} in another way, which is not covered",
        )


def _message(message: Any) -> Any:
    if not isinstance(message, Mapping):
        return message
    if str(message.get("role")).lower() == "root":
        raise invalid("this version of SGLang has no role 'root'")
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        url = part.get("image_url") if isinstance(part, Mapping) else None
        if isinstance(url, Mapping) and url.get("detail") == "default":
            raise invalid("this version of SGLang has no detail 'default' of a picture")
    if "prefix" not in message:
        return message
    return {name: value for name, value in message.items() if name != "prefix"}


def _tool(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        return tool
    if function.get("strict", False) is None:
        raise invalid("this version of SGLang takes no null as strict of a tool")
    whole = {"strict": False, **function}
    return {**tool, "function": {name: whole.get(name) for name in _FUNCTION}}
