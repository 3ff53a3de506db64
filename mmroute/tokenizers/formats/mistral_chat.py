"""mistral-common's chat encoder, with sizes in place of images and lengths in place of audio."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from mistral_common.protocol.instruct.chunk import (
    AudioChunk,
    AudioURLChunk,
    ImageChunk,
    ImageURLChunk,
)
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.audio import AudioEncoding
from mistral_common.tokens.tokenizers.base import Tokenizer
from mistral_common.tokens.tokenizers.image import ImageEncoding
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from mmroute.errors import InexactError, Reason, malformed, needs_extra
from mmroute.model_directory import what_stands_instead
from mmroute.requests.items import AudioLength, ImageSize, Modality
from mmroute.token_ids import TokenIds, as_token_ids
from mmroute.tokenizers.formats.tekken import load_chat_tokenizer
from mmroute.tokenizers.known_texts import KnownTexts

_FIRST_WITH_EFFORT: Final = 15
_SIZE_URL: Final = "size:"
_T = TypeVar("_T")
_NO_PIXELS: Final = np.empty((0, 0, 0), dtype=np.float32)


class _SizedImageEncoder:
    """Takes the place of mistral-common's image encoder: turns a size into tokens."""

    def __init__(self, tokens_of: Callable[[ImageSize], list[int]]) -> None:
        self._tokens_of = tokens_of

    def __call__(self, content: ImageChunk | ImageURLChunk) -> ImageEncoding:
        url = content.get_url() if isinstance(content, ImageURLChunk) else ""
        width, _, height = url.removeprefix(_SIZE_URL).partition("x")
        tokens = self._tokens_of(ImageSize(int(width), int(height)))
        return ImageEncoding(tokens=tokens, image=_NO_PIXELS)


class _CountedAudioEncoder:
    """Takes the place of mistral-common's audio encoder: turns a length into tokens."""

    def __init__(self, begin: int, tokens_of: Callable[[AudioLength], list[int]]) -> None:
        self._begin = begin
        self._tokens_of = tokens_of

    def __call__(self, content: AudioChunk | AudioURLChunk) -> AudioEncoding:
        url = content.url if isinstance(content, AudioURLChunk) else str(content.input_audio)
        samples, rate, channels, needs_ffmpeg = map(int, url.removeprefix(_SIZE_URL).split("x"))
        audio = AudioLength(samples, rate, channels=channels, needs_ffmpeg=bool(needs_ffmpeg))
        return AudioEncoding(tokens=[self._begin, *self._tokens_of(audio)], audio=None)


@contextmanager
def loads_mistral_file(path: Path) -> Iterator[None]:
    """A context in which mistral-common's errors about a tokenizer file become clear ones."""
    with needs_extra("formats", "sentencepiece", str(path)):
        try:
            yield
        except ImportError:
            raise
        except Exception as error:  # mistral-common raises many types for a bad file
            instead = what_stands_instead(path.read_text(encoding="utf-8", errors="replace"))
            why = instead or f"cannot be loaded: {error!r}"
            raise malformed(f"{path} {why}") from error


def _shallow_copy(value: _T) -> _T:
    """A shallow copy. A tokenizer's own way to be copied would load its file again."""
    copied = object.__new__(type(value))
    vars(copied).update(vars(value))
    return copied


def _text_encoder(tokenizer: Tokenizer) -> Callable[[str, bool, bool], list[int]]:
    """`tokenizer.encode`, without tiktoken's slow search for special tokens."""
    if not isinstance(tokenizer, Tekkenizer):
        return tokenizer.encode
    encode, first = tokenizer._model.encode_ordinary, tokenizer.num_special_tokens  # noqa: SLF001 - mistral-common calls the other one
    bos_id, eos_id = tokenizer.bos_id, tokenizer.eos_id

    def encode_text(s: str, bos: bool, eos: bool) -> list[int]:
        return [bos_id] * bos + [first + token for token in encode(s)] + [eos_id] * eos

    return encode_text


@dataclass(frozen=True, slots=True)
class MistralChatEncoder:
    """Encodes chats, with the tokens of their images and audio, as mistral-common does."""

    backend: MistralTokenizer[Any, Any, Any, Any, Any]

    @classmethod
    def load(cls, path: Path, text_cache_bytes: int = 0) -> MistralChatEncoder:
        """Load one of Mistral's tokenizer files."""
        with loads_mistral_file(path):
            backend = load_chat_tokenizer(path)
        # mistral-common decodes its result for a text that is not used here: half of its time.
        instruct: Any = backend.instruct_tokenizer
        instruct.decode = lambda **_: ""
        encode = _text_encoder(instruct.tokenizer)
        instruct.tokenizer = _shallow_copy(instruct.tokenizer)
        instruct.tokenizer.encode = (
            KnownTexts(encode, text_cache_bytes) if text_cache_bytes else encode
        )
        return cls(backend)

    @property
    def text_tokenizer(self) -> Tokenizer:
        """The tokenizer that encodes the texts of a chat."""
        tokenizer: Tokenizer = self.backend.instruct_tokenizer.tokenizer
        return tokenizer

    def with_items(
        self, media: Collection[Modality], tokens_of: Callable[[ImageSize | AudioLength], list[int]]
    ) -> MistralChatEncoder:
        """The same encoder, for chats with items of these modalities."""
        backend = _shallow_copy(self.backend)
        instruct: Any = copy(self.backend.instruct_tokenizer)
        backend.instruct_tokenizer = instruct
        if Modality.IMAGE in media:
            instruct.image_encoder = _SizedImageEncoder(tokens_of)
        if Modality.AUDIO in media and instruct.audio_encoder is not None:
            begin = instruct.audio_encoder.begin_audio_token
            instruct.audio_encoder = _CountedAudioEncoder(begin, tokens_of)
        return MistralChatEncoder(backend)

    @staticmethod
    def audio_part(audio: AudioLength, *, inline: bool) -> dict[str, Any]:
        """A message part that `encode` turns into the tokens of audio of this length."""
        numbers = audio.num_samples, audio.sampling_rate, audio.channels, int(audio.needs_ffmpeg)
        url = _SIZE_URL + "x".join(map(str, numbers))
        if inline:
            return {"type": "input_audio", "input_audio": {"data": url}}
        return {"type": "audio_url", "audio_url": {"url": url}}

    @staticmethod
    def image_part(size: ImageSize) -> dict[str, Any]:
        """A message part that `encode` turns into the tokens of an image of this size."""
        return {"type": "image_url", "image_url": {"url": f"{_SIZE_URL}{size}"}}

    def encode(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None,
        continue_final_message: bool,
        reasoning_effort: str | None = None,
    ) -> TokenIds:
        """Token IDs of a conversation, shape (n,), uint32."""
        version = int(self.text_tokenizer.version.value.removeprefix("v"))
        try:
            request = ChatCompletionRequest.from_openai(
                messages=messages,
                tools=tools,
                continue_final_message=continue_final_message,
                reasoning_effort=reasoning_effort if version >= _FIRST_WITH_EFFORT else None,
            )
            return as_token_ids(self.backend.encode_chat_completion(request).tokens)
        except InexactError:
            raise
        except Exception as error:  # it has assertions, and raises many types for bad input
            raise InexactError(
                Reason.CHAT_TEMPLATE_FAILED, f"mistral-common refuses the messages: {error!r}"
            ) from error
