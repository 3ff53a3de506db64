r"""A router's view of running vLLM workers: which of them holds most of a prompt, live.

Start each worker with its events, and give mmroute the same options:

    PYTHONHASHSEED=0 vllm serve Qwen/Qwen2.5-VL-3B-Instruct --port 8001 --kv-events-config \
      '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557",
        "replay_endpoint": "tcp://*:5558", "topic": "kv"}'

    python examples/live_vllm.py Qwen/Qwen2.5-VL-3B-Instruct \
      --worker a=tcp://127.0.0.1:5557,tcp://127.0.0.1:5558 \
      --engine-args "PYTHONHASHSEED=0 vllm serve Qwen/Qwen2.5-VL-3B-Instruct" < requests.jsonl

Each line of standard input is a request; its answer is the number of blocks that each worker holds
of it. Needs pip install '.[events]'.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Iterable

from mmroute import Normalizer
from mmroute.answering.routing import Routing
from mmroute.cli.requests import answer_line
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.kv_events import BlockIndex, Received, Subscriber
from mmroute.kv_events.streams import Message


def follow(index: BlockIndex, worker: str, messages: Iterable[Message]) -> None:
    """Keep the index as the worker's cache is."""
    for message in messages:
        if not isinstance(message, Received):  # another process, or events that are lost
            print(f"forgetting the blocks of {worker}: {message}", file=sys.stderr)
        index.apply(worker, message)


def main() -> None:
    """Follow the workers, and answer requests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--worker", action="append", required=True, metavar="NAME=EVENTS[,REPLAYS]")
    parser.add_argument("--topic", default="kv")
    parser.add_argument("--engine-args", default="")
    arguments = parser.parse_args()
    normalizer = Normalizer.from_pretrained(
        arguments.model, engine_settings=VllmSettings.from_args(arguments.engine_args)
    )
    index = BlockIndex()
    for given in arguments.worker:
        worker, _, endpoints = given.partition("=")
        events, _, replays = endpoints.partition(",")
        subscriber = Subscriber(events, topic=arguments.topic, replay_endpoint=replays or None)
        threading.Thread(target=follow, args=(index, worker, subscriber), daemon=True).start()

    def held(routing: Routing) -> dict[str, object]:
        hashes = routing.block_hashes()
        workers = {
            f"{rank.worker}/{rank.data_parallel_rank}": blocks
            for rank, blocks in index.longest_prefixes(hashes).items()
        }
        return {"blocks": len(hashes), "held": workers}

    for line in sys.stdin:
        print(json.dumps(answer_line(line, normalizer.answer, held)), flush=True)


if __name__ == "__main__":
    main()
