"""mistral-common's tekken tokenizer and chat encoder, with images given by their sizes.

mistral-common's chat encoder calls an image encoder for every image part and puts the tokens
it returns where the image stands. Given one that answers from a size, its own encoding does
the rest, and no pixel is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from mistral_common.protocol.instruct.chunk import ImageChunk, ImageURLChunk
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.validator import ValidationMode
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy, SpecialTokens
from mistral_common.tokens.tokenizers.image import ImageEncoding
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from mmroute.errors import InexactError, ModelError, Reason
from mmroute.geometry import TokenIds
from mmroute.model.files import ModelFiles
from mmroute.request import ImageSize
from mmroute.tokenizers.pieces import Pieces

__all__ = ["MistralCommonTokenizer", "decode_tekken", "load_mistral_tokenizer"]

_SIZE_URL: Final = "size:"
_FRAMING: Final = frozenset(token.value for token in (
    SpecialTokens.tool_calls, SpecialTokens.args, SpecialTokens.begin_think,
    SpecialTokens.end_think))  # fmt: skip
_NO_PIXELS: Final = np.empty((0, 0, 0), dtype=np.float32)


class _SizedImageEncoder:
    """Stands in for mistral-common's image encoder: sizes in, tokens out."""

    def __init__(self, tokens_of: Callable[[ImageSize], list[int]]) -> None:
        self._tokens_of = tokens_of

    def __call__(self, content: ImageChunk | ImageURLChunk) -> ImageEncoding:
        url = content.get_url() if isinstance(content, ImageURLChunk) else ""
        width, _, height = url.removeprefix(_SIZE_URL).partition("x")
        tokens = self._tokens_of(ImageSize(int(width), int(height)))
        return ImageEncoding(tokens=tokens, image=_NO_PIXELS)


@dataclass(frozen=True, slots=True)
class MistralCommonTokenizer:
    """mistral-common behind the protocol of this package."""

    backend: MistralTokenizer[Any, Any, Any, Any, Any]
    tekken: Tekkenizer
    bos_token_id: int
    max_token_id: int
    max_chars_per_token: int
    special_tokens: tuple[str, ...]
    pieces: Pieces

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """See `Tokenizer.encode`. Special tokens in the text stay ordinary text."""
        text.encode()  # tekken would take a lone surrogate for U+FFFD
        return np.array(self.tekken.encode(text, bos=add_special_tokens, eos=False), np.uint32)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """See `Tokenizer.decode`. The tokens that frame calls and reasoning are never left out."""
        return decode_tekken(self.tekken, ids, skip_special_tokens=skip_special_tokens)

    def token_id(self, token: str) -> int | None:
        """See `Tokenizer.token_id`; special tokens only."""
        return self.special_tokens.index(token) if token in self.special_tokens else None

    def encoder_stats(self) -> None:
        """See `Tokenizer.encoder_stats`."""

    def answer_images_with(self, tokens_of: Callable[[ImageSize], list[int]]) -> None:
        """Give the chat encoder its image tokens; once, while the model is loaded."""
        self.backend.instruct_tokenizer.image_encoder = _SizedImageEncoder(tokens_of)  # type: ignore[assignment]  # it calls it and nothing else

    @staticmethod
    def image_part(size: ImageSize) -> dict[str, Any]:
        """A message part that `encode_chat` turns into the tokens of an image of this size."""
        return {"type": "image_url", "image_url": {"url": f"{_SIZE_URL}{size}"}}

    def encode_chat(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None,
        continue_final_message: bool,
    ) -> TokenIds:
        """Token IDs of a conversation, image tokens included.

        Raises:
            InexactError: `chat_template_failed`, with mistral-common's own words.
        """
        try:
            request = ChatCompletionRequest.from_openai(
                messages=messages, tools=tools, continue_final_message=continue_final_message
            )
            return np.array(self.backend.encode_chat_completion(request).tokens, np.uint32)
        except InexactError:
            raise
        except Exception as error:  # it asserts, and raises whatever its input makes it
            raise InexactError(
                Reason.CHAT_TEMPLATE_FAILED, f"mistral-common refuses the messages: {error!r}"
            ) from error


def decode_tekken(tekken: Tekkenizer, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
    """Leaves out what vLLM 0.33.0's detokenizer does (`convert_ids_to_tokens`)."""
    if skip_special_tokens:
        first = tekken.num_special_tokens
        ids = [i for i in ids if i >= first or tekken.id_to_piece(i) in _FRAMING]
    return tekken.decode(list(ids), special_token_policy=SpecialTokenPolicy.KEEP)


def _no_text(**_: object) -> str:
    return ""


def load_mistral_tokenizer(files: ModelFiles) -> MistralCommonTokenizer:
    """Load ``tekken.json``.

    Raises:
        ModelError: `missing_file`, `malformed_file`.
    """
    path = files.path("tekken.json")
    if not path.is_file():
        raise ModelError(Reason.MISSING_FILE, f"{files.name}: tekken.json is missing: {path}")
    try:
        backend = MistralTokenizer.from_file(str(path), mode=ValidationMode.test)
    except Exception as error:  # mistral-common has no one exception for a bad file
        raise ModelError(Reason.MALFORMED_FILE, f"{path} cannot be loaded: {error!r}") from error
    tekken = backend.instruct_tokenizer.tokenizer
    if not isinstance(tekken, Tekkenizer):
        raise ModelError(Reason.MALFORMED_FILE, f"{path} does not hold a tekken tokenizer.")
    # The chat encoder decodes what it has encoded, for a text nobody reads: half of all its time.
    backend.instruct_tokenizer.decode = _no_text  # type: ignore[assignment]  # it calls it and nothing else
    vocabulary = tekken.vocab()
    return MistralCommonTokenizer(
        backend=backend,
        tekken=tekken,
        bos_token_id=tekken.bos_id,
        max_token_id=len(vocabulary) - 1,
        max_chars_per_token=max(map(len, vocabulary)),
        special_tokens=tuple(vocabulary[: tekken.num_special_tokens]),
        pieces=Pieces(partial(decode_tekken, tekken), len(vocabulary) - 1),
    )
