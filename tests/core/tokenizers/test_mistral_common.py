"""What is replaced in mistral-common is there, and called as it was in the version that was read.

Its tokenizers have no public way to be loaded without the text of each token, nor to encode without
decoding. A release that changes one of these fails here, and not in answers.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any, Final

import mistral_common
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from mmroute.tokenizers.formats.mistral_chat import MistralChatEncoder, Tekken

READ: Final = "1.13"
TEKKEN: Final = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
CHAT: Final[list[dict[str, Any]]] = [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Où? 日本"}
]  # fmt: skip


def test_it_is_the_version_that_was_read() -> None:
    assert importlib.metadata.version("mistral-common").startswith(f"{READ}.")
    load = MistralTokenizer.from_file.__func__  # type: ignore[attr-defined]  # a classmethod
    assert "Tekkenizer" in load.__code__.co_names
    assert load.__globals__["Tekkenizer"] is Tekkenizer


def test_a_tokenizer_with_our_parts_encodes_as_its_own() -> None:
    own = MistralTokenizer.from_file(str(TEKKEN))
    encoder = MistralChatEncoder.load(TEKKEN)
    assert isinstance(encoder.text_tokenizer, Tekken)
    request: Any = ChatCompletionRequest.from_openai(messages=CHAT)
    expected = own.encode_chat_completion(request)
    assert expected.text
    ids = encoder.encode(CHAT, tools=None, continue_final_message=False)
    assert ids.tolist() == expected.tokens
    assert encoder.backend.encode_chat_completion(request).text == ""  # nothing was decoded
    assert encoder.text_tokenizer.vocab() == own.instruct_tokenizer.tokenizer.vocab()
