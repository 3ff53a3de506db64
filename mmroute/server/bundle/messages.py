"""The message of the services that stream a zip, and their names.

Source: smg-grpc-proto 0.4.28, whose ``GetTokenizerChunk`` this is on the wire. It has another name
here, because a process may load both, and protobuf takes one definition of a name only.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

SERVICES: Final = (
    "vllm.grpc.engine.VllmEngine",
    "sglang.grpc.scheduler.SglangScheduler",
    "trtllm.TrtllmService",
    "tokenspeed.grpc.scheduler.TokenSpeedScheduler",
    "mlx.grpc.engine.MlxEngine",
)
"""The engines' services, in the order in which a worker is asked for them."""

METHOD: Final = "GetTokenizer"
"""A method of each of them. Its request has no fields."""


def _chunk() -> Any:
    file = FileDescriptorProto(name="mmroute/bundle.proto", package="mmroute", syntax="proto3")
    message = file.message_type.add(name="ZipChunk")
    message.field.add(name="data", number=1, type=FieldDescriptorProto.TYPE_BYTES)
    message.field.add(name="sha256", number=2, type=FieldDescriptorProto.TYPE_STRING)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("mmroute.ZipChunk"))


ZipChunk: Final[Any] = _chunk()
"""A piece of the zip; the last one has the SHA-256 of the whole zip, in hexadecimal."""
