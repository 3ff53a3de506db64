"""Decodes token IDs as they arrive, and stops at stop strings and stop tokens."""

from mmroute.decode.sequence import Sequence
from mmroute.decode.stop import (
    StopConditions,
    StopOutput,
    StopSequenceDecoder,
    StopString,
    StopToken,
)
from mmroute.decode.stream import DecodeStream, TokenDecoder

__all__ = [
    "DecodeStream", "Sequence", "StopConditions", "StopOutput", "StopSequenceDecoder",
    "StopString", "StopToken", "TokenDecoder",
]  # fmt: skip
