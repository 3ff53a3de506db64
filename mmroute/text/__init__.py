"""Tokenizers of any format, and text out of token IDs as they arrive, up to its stops."""

from typing import TYPE_CHECKING

from mmroute.lazy import lazily
from mmroute.text.sequence import Sequence
from mmroute.text.stop import (
    StopConditions,
    StopOutput,
    StopSequenceDecoder,
    StopString,
    StopToken,
)
from mmroute.text.stream import DecodeStream, TokenDecoder

if TYPE_CHECKING:
    from mmroute.text.loaded_tokenizer import LoadedTokenizer
    from mmroute.text.loading import load_tokenizer

__all__ = [
    "DecodeStream",
    "LoadedTokenizer",
    "Sequence",
    "StopConditions",
    "StopOutput",
    "StopSequenceDecoder",
    "StopString",
    "StopToken",
    "TokenDecoder",
    "load_tokenizer",
]

# Decoding needs no files, and these do.
__getattr__ = lazily(
    __name__,
    {
        "LoadedTokenizer": "mmroute.text.loaded_tokenizer",
        "load_tokenizer": "mmroute.text.loading",
    },
)
