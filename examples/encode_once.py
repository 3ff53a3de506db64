"""Encode, then generate, with mmroute as the only one who reads the request.

    python examples/encode_once.py MODEL --encoder URL --worker URL --worker-args LINE < chats.jsonl

Each line is a chat of OpenAI's API. The encoder, a vLLM with an encoder-cache connector, is sent
each picture once. The worker, which has the consuming end of the connector, gets token IDs and
metadata, and no pixels: it neither renders, tokenizes, fetches nor decodes. What cannot be sent so
goes to the worker as the client sent it. docs/forwarding.md has the engines' command lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import mmroute
from mmroute import forwarding

Json = dict[str, Any]


def post(url: str, body: Mapping[str, Any]) -> Json:
    """The answer of an engine.

    Raises:
        urllib.error.HTTPError: its status is not 200.
    """
    data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, data, kind)  # noqa: S310 - the operator's own engine
    try:
        with urllib.request.urlopen(asked) as answer:  # noqa: S310 - likewise
            found: Json = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        error.close()  # it is the response as well
        raise


class Stage:
    """The stage in front of an encoder and a worker."""

    def __init__(self, normalizer: mmroute.Normalizer, encoder: str, worker: str) -> None:
        self._normalizer = normalizer
        self._encoder = encoder
        self._worker = worker
        self._encoded: Json = {}  # what the encoder said of each picture, by its uuid

    def answer(self, chat: Json) -> Json:
        """The worker's answer: by token IDs and metadata if it can be, or else to the chat."""
        chat = forwarding.with_uuids(chat)
        routing = self._normalizer.answer(mmroute.from_openai(chat))
        sampling: Json = {n: chat[n] for n in ("temperature", "max_tokens") if n in chat}
        try:
            names = [identity.value for _, identity in routing.identified()]
            transfer = self._encode(chat, names)
            body = forwarding.vllm_generate_metadata(
                routing,
                {**chat, "ec_transfer_params": transfer},
                sampling_params=sampling,
                output_mode="text",
            )
            return post(f"{self._worker}/inference/v1/generate", body)
        except (mmroute.InexactError, ValueError, urllib.error.HTTPError) as error:
            print(f"sent whole: {error}", file=sys.stderr)
            for placed in routing.items:  # the worker may have lost one: encode them anew
                self._encoded.pop(str(placed.identity), None)
            return post(f"{self._worker}/v1/chat/completions", chat)

    def _encode(self, chat: Json, names: list[str]) -> Json:
        """What the encoder says of these pictures; those that are new to it are sent."""
        new = [
            part
            for message in chat["messages"]
            if isinstance(message["content"], list)
            for part in message["content"]
            if part.get("uuid") in names and part["uuid"] not in self._encoded
        ]
        if new:
            ask = {
                "model": chat["model"],
                "max_tokens": 1,
                "messages": [{"role": "user", "content": new}],
            }
            answer = post(f"{self._encoder}/v1/chat/completions", ask)
            self._encoded.update(answer.get("ec_transfer_params") or {})
        return {name: self._encoded[name] for name in names if name in self._encoded}


def main() -> None:
    """Answer the chats of standard input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--worker-args", required=True, help="the worker's command line")
    options = parser.parse_args()
    settings = mmroute.EngineSettings.from_args(options.worker_args)
    normalizer = mmroute.Normalizer.from_pretrained(options.model, engine_settings=settings)
    stage = Stage(normalizer, options.encoder, options.worker)
    for line in sys.stdin:
        answer = stage.answer(json.loads(line))
        print(json.dumps(answer["choices"][0]))


if __name__ == "__main__":
    main()
