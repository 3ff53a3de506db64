"""An inference engine for Ray Serve, reduced to its prefix cache and its KV events."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import ray
import zmq

from mmroute.lab.traces.block_cache import BlockCache

BLOCK_SIZE: Final = 16
_END: Final = (-1).to_bytes(8, "big", signed=True)
_BUFFERED: Final = 10_000  # batches that can be asked for again: vLLM's default


class Publisher:
    """The sockets of vLLM's ZmqEventPublisher: events, and replays of those that were missed."""

    def __init__(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._events, self._replays = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        address = ray.util.get_node_ip_address()
        self.endpoint, self.replay_endpoint = (
            f"tcp://{address}:{socket.bind_to_random_port('tcp://*')}"
            for socket in (self._events, self._replays)
        )
        self._sent: deque[list[bytes]] = deque(maxlen=_BUFFERED)
        self._number = 0
        threading.Thread(target=self._replay, daemon=True).start()

    def publish(self, events: Sequence[dict[str, Any]]) -> None:
        """Send one batch."""
        payload = msgspec.msgpack.encode([time.time(), events, 0])
        frames = [b"", self._number.to_bytes(8, "big"), payload]
        self._number += 1
        self._sent.append(frames)
        self._events.send_multipart(frames)

    def _replay(self) -> None:
        while True:
            client, empty, number = self._replays.recv_multipart()
            missed = [frames for frames in list(self._sent) if frames[1] >= number]
            for frames in [*missed, [b"", _END, b""]]:
                self._replays.send_multipart([client, empty, *frames])


class SimulatedEngine:
    """A deployment whose replicas hold blocks and evict them as vLLM's block pool does.

    It computes nothing: it takes so long for each block that is not cached.

    Args:
        num_blocks: of the cache.
        seconds: for one request.
        seconds_per_block: for each block that is not cached.
    """

    def __init__(
        self, num_blocks: int, seconds: float = 0.002, seconds_per_block: float = 0.0001
    ) -> None:
        self._cache = BlockCache(num_blocks)
        self._publisher = Publisher()
        self._names: dict[int, int] = {}  # of each block, that in the events
        self._seconds, self._seconds_per_block = seconds, seconds_per_block

    def record_routing_stats(self) -> dict[str, Any]:
        """Where the events are, as the replicas of Ray Serve LLM tell it."""
        return {
            "kv_event_metadata": {
                "endpoint": self._publisher.endpoint,
                "replay_endpoint": self._publisher.replay_endpoint,
                "block_size": BLOCK_SIZE,
            }
        }

    async def __call__(
        self,
        request: Any,
        blocks: Sequence[int],
        published: Sequence[int],
        *,
        prompt_token_ids: Any = None,
    ) -> dict[str, Any]:
        """Answer a request.

        Args:
            request: an OpenAI chat. The router reads it, this engine does not.
            blocks: the low 64 bits of the hashes of its blocks, as vLLM computes them.
            published: by which its events name these blocks.
            prompt_token_ids: those that the router found.

        Returns:
            Whether all blocks were cached, how many token IDs came along, and the node's ID.
        """
        before = Counter(self._cache.held())
        self._names.update(zip(blocks, published, strict=True))
        hits = self._cache.serve(blocks, lookup=len(blocks), ends_in_block=True)
        after = Counter(self._cache.held())
        await asyncio.sleep(self._seconds + self._seconds_per_block * (len(blocks) - hits))
        self._publisher.publish(
            [
                {
                    "type": "BlockStored",
                    "block_hashes": [self._names[block] for block in (after - before).elements()],
                    "parent_block_hash": None,
                    "token_ids": [],
                    "block_size": BLOCK_SIZE,
                    "lora_id": None,
                    "medium": "GPU",
                    "lora_name": None,
                },
                {
                    "type": "BlockRemoved",
                    "block_hashes": [self._names[block] for block in (before - after).elements()],
                    "medium": "GPU",
                },
            ]
        )
        return {
            "whole": hits == len(blocks),
            "tokens": None if prompt_token_ids is None else len(prompt_token_ids),
            "node": ray.get_runtime_context().get_node_id(),
        }
