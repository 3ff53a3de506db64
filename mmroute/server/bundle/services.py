"""The gRPC services that send bundles."""

from __future__ import annotations

from typing import Final

from mmroute.server.bundle.bundle_pb2 import DESCRIPTOR

FILES_SERVICE: Final = DESCRIPTOR.services_by_name["TokenizerBundle"].full_name
"""mmroute's own service, which sends the metadata and then file by file."""

ENGINE_SERVICES: Final = (
    "vllm.grpc.engine.VllmEngine",
    "sglang.grpc.scheduler.SglangScheduler",
    "trtllm.TrtllmService",
    "tokenspeed.grpc.scheduler.TokenSpeedScheduler",
    "mlx.grpc.engine.MlxEngine",
)
"""The engines' own services, which stream a zip. Source: smg-grpc-proto 0.4.28."""

SERVICES: Final = (FILES_SERVICE, *ENGINE_SERVICES)
"""All services, in the order in which a worker is asked for them."""


def method(service: str) -> str:
    """The path of a service's `GetTokenizer`."""
    return f"/{service}/GetTokenizer"
