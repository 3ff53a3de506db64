"""Mistral's own tokenizer files, ``tekken.json`` and ``tokenizer.model.vN``, by mistral-common."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np
from mistral_common.protocol.instruct.chunk import (
    AudioChunk,
    AudioURLChunk,
    ImageChunk,
    ImageURLChunk,
)
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.validator import ValidationMode
from mistral_common.tokens.tokenizers import mistral
from mistral_common.tokens.tokenizers.audio import AudioEncoding
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy, SpecialTokens, Tokenizer
from mistral_common.tokens.tokenizers.image import ImageEncoding
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from mmroute.errors import InexactError, ModelError, Reason, malformed, needs_extra
from mmroute.model_directory import ModelFiles, what_stands_instead
from mmroute.requests.items import AudioLength, ImageSize, Modality
from mmroute.reuse.prefix_cache import RecentCache
from mmroute.token_ids import TokenIds, as_token_ids
from mmroute.tokenizers.fewest_tokens import FewestTokens

_MIN_CHARS: Final = 64  # shorter texts are encoded about as fast as they are found
_OVERHEAD: Final = 256  # the bytes that an entry takes beside its text and its token IDs


class KnownTexts(RecentCache[tuple[str, bool, bool], "array[int]"]):
    """Encodes as another encoder does, and each text once while the cache has it."""

    def __init__(self, encode: Callable[[str, bool, bool], list[int]], max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._encode = encode

    def __call__(self, s: str, bos: bool, eos: bool) -> list[int]:
        """The token IDs of a text, in a list of the caller's own."""
        if len(s) < _MIN_CHARS:
            return self._encode(s, bos, eos)
        key = (s, bos, eos)
        with self._lock:
            known = self._recent.get(key)
            if known is not None:
                self._recent.move_to_end(key)
                self._hits += 1
                self._reused += len(s)
                return known.tolist()
            self._misses += 1
        ids = self._encode(s, bos, eos)
        self._put(key, array("I", ids))
        return ids

    def _put(self, key: tuple[str, bool, bool], ids: array[int]) -> None:
        with self._lock:
            if key not in self._recent:
                self._bytes += _size(key, ids)
            self._recent[key] = ids
            while self._bytes > self._max_bytes:
                self._bytes -= _size(*self._recent.popitem(last=False))


def _size(key: tuple[str, bool, bool], ids: array[int]) -> int:
    return sys.getsizeof(key[0]) + ids.itemsize * len(ids) + _OVERHEAD


class Tekken(Tekkenizer):
    """mistral-common's tokenizer, without the texts of its tokens, which take 0.3 s to make."""

    def id_to_piece(self, token_id: int) -> str:
        return super().id_to_piece(token_id) if "_vocab" in vars(self) else ""

    def vocab(self) -> list[str]:
        return self._spelled

    @cached_property
    def _spelled(self) -> list[str]:
        return [self.id_to_piece(token_id) for token_id in range(self.n_words)]


def load_chat_tokenizer(path: Path) -> mistral.MistralTokenizer[Any, Any, Any, Any, Any]:
    """Load one of Mistral's tokenizer files with its encoder of chats."""
    load = mistral.MistralTokenizer.from_file.__func__  # type: ignore[attr-defined]  # a classmethod
    # The function names its class of tokenizers. Replaced in its module, it would be everybody's.
    with_ours = FunctionType(load.__code__, {**load.__globals__, "Tekkenizer": Tekken})
    tokenizer: mistral.MistralTokenizer[Any, Any, Any, Any, Any] = with_ours(
        mistral.MistralTokenizer, str(path), ValidationMode.test
    )
    return tokenizer


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

    backend: mistral.MistralTokenizer[Any, Any, Any, Any, Any]

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


_FRAMING: Final = frozenset(token.value for token in (
    SpecialTokens.tool_calls, SpecialTokens.args, SpecialTokens.begin_think,
    SpecialTokens.end_think))  # fmt: skip


class MistralTokenizer:
    """mistral-common's text encoder. Special tokens in a text stay ordinary text. Immutable."""

    reads_special_tokens: Final = False

    def __init__(
        self,
        backend: Tokenizer,
        chat_encoder: MistralChatEncoder | None = None,
        template_tokens: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        tekken = isinstance(backend, Tekkenizer)
        self.backend = backend
        self.chat_encoder = chat_encoder
        self.vocab_size = backend.n_words
        self.special_tokens = {backend.id_to_piece(i): i for i in sorted(backend.special_ids)}
        self.named_tokens = tuple(self.special_tokens)
        self.template_tokens = template_tokens
        self.joins_pieces = tekken

    # Few requests need these three, and for 131,000 tokens they take 80 ms.

    @cached_property
    def max_chars_per_token(self) -> int:
        return max(map(len, self.backend.vocab()))

    @cached_property
    def fewest_tokens(self) -> FewestTokens | None:
        tekken = isinstance(self.backend, Tekkenizer)
        return FewestTokens(self.backend.vocab()) if tekken else None

    @cached_property
    def _ordinary(self) -> Mapping[str, int]:
        # Tokens that are not UTF-8 on their own share one spelling: the first of them has it.
        entries = enumerate(self.backend.vocab())
        return {entry: i for i, entry in reversed(list(entries))}

    @property
    def bos_token_id(self) -> int:
        return self.backend.bos_id

    @property
    def max_token_id(self) -> int:
        return self.vocab_size - 1

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        text.encode()  # raises for a lone surrogate, which tekken would replace by U+FFFD
        return as_token_ids(self.backend.encode(text, bos=add_special_tokens, eos=False))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """See `Codec.decode`. Tokens that frame tool calls and reasoning are always in the text."""
        if isinstance(self.backend, Tekkenizer):
            if skip_special_tokens:  # what vLLM does (`convert_ids_to_tokens`)
                first, entry = self.backend.num_special_tokens, self.backend.id_to_piece
                ids = [i for i in ids if i >= first or entry(i) in _FRAMING]
            return self.backend.decode(list(ids), special_token_policy=SpecialTokenPolicy.KEEP)
        if skip_special_tokens:
            return self.backend.decode(list(ids), special_token_policy=SpecialTokenPolicy.IGNORE)
        # The policy KEEP would return the text as pieces, too (``▁Hello``), not only the tokens.
        parts = []
        for special, run in groupby(ids, self.backend.is_special):
            if special:
                parts += [self.backend.id_to_piece(i) for i in run]
            else:
                parts.append(
                    self.backend.decode(list(run), special_token_policy=SpecialTokenPolicy.IGNORE)
                )
        return "".join(parts)

    def token_id(self, token: str) -> int | None:
        special = self.special_tokens.get(token)
        return self._ordinary.get(token) if special is None else special

    def token(self, token_id: int) -> str | None:
        return self.backend.id_to_piece(token_id) if token_id < self.vocab_size else None

    def offsets(self, text: str, *, add_special_tokens: bool) -> None:
        """None: mistral-common has no offsets."""

    def encode_cut(self, text: str) -> tuple[TokenIds, list[tuple[int, int]]]:
        """See `Tokenizer.encode_cut`. There are no cuts: none are proved for mistral-common."""
        return self.encode(text, add_special_tokens=False), []

    def encoder_stats(self) -> None:
        """None: there is one encoder and no cache."""


def load_backend(path: Path, *, tekken: bool) -> Tokenizer:
    """mistral-common's tokenizer of a file. `tekken` is of its two formats."""
    with loads_mistral_file(path):
        backend = Tekken.from_file(path) if tekken else SentencePieceTokenizer(path)
    if backend.bos_id < 0:
        raise malformed(f"{path} has no BOS token.")
    return backend


def load_mistral_model(files: ModelFiles, text_cache_bytes: int) -> MistralTokenizer:
    """Load ``tekken.json``, or else ``tokenizer.model.vN``, with mistral-common's chat encoder."""
    names = files.names(("tekken.json", "tokenizer.model.v*"))
    if not names:
        raise ModelError(
            Reason.MISSING_FILE, f"{files.name}: {files.path('tekken.json')} is missing."
        )
    if len(names) > 1 and "tekken.json" not in names:
        raise ModelError(
            Reason.CONTRADICTORY_CONFIG,
            f"{files.name} holds several vocabularies: {', '.join(names)}. Keep only the newest.",
        )
    chat_encoder = MistralChatEncoder.load(files.path(names[0]), text_cache_bytes)
    return MistralTokenizer(chat_encoder.text_tokenizer, chat_encoder)
