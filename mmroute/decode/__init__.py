"""Token IDs to text while they arrive: streams, and where to stop."""

from mmroute.decode.sequence import Sequence
from mmroute.decode.stop import (
    StopConditions,
    StopOutput,
    StopSequenceDecoder,
    StopSequenceDecoderBuilder,
    StopString,
    StopToken,
)
from mmroute.decode.stream import DecodeStream, TokenDecoder

__all__ = [
    "DecodeStream",
    "Sequence",
    "StopConditions",
    "StopOutput",
    "StopSequenceDecoder",
    "StopSequenceDecoderBuilder",
    "StopString",
    "StopToken",
    "TokenDecoder",
]
