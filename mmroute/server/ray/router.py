"""A request router for Ray Serve, which sends a request where most of its prompt is cached."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from ray.util.metrics import Counter

from mmroute.answering.routing import Routing
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.errors import InexactError
from mmroute.kv_events.policy import Prompt, Weights, WorkerState, cost, pick
from mmroute.server.loading import ModelSource
from mmroute.server.ray.alpha import (
    EVENTS_KEY,
    PendingRequest,
    RequestRouter,
    RunningReplica,
)
from mmroute.server.ray.caches import Endpoints, ReplicaCaches
from mmroute.server.ray.prompts import NoRoutingError, PromptReader

_BODY_FIELDS: Final = ("messages", "prompt")
_DECISIONS: Final = "mmroute_router_decisions"


class BlockHashRouter(RequestRouter):  # type: ignore[misc]  # Ray has no types here
    """Picks the replica at which a prompt costs least: `mmroute.kv_events.policy.pick`.

    It works for any deployment whose replicas publish vLLM's KV events. A replica gives their
    addresses by its method ``record_routing_stats``, in the form of Ray Serve LLM's own replicas::

        {"kv_event_metadata": {"endpoint": ..., "replay_endpoint": ..., "block_size": 16}}

    The block size may be left out. That of the events wins: engines choose it for some models.

    The request is the first argument of a call that has ``messages`` or ``prompt``: a mapping, or
    an object with these attributes. A request without an exact answer goes to the replica with the
    least load.
    """

    # It is longer than Ray's 0.1 seconds, because another replica must compute the prompt.
    queue_len_response_deadline_s = 0.5

    def initialize_state(
        self,
        *,
        model: str,
        backend: str = "vllm",
        engine_args: str = "",
        served_names: tuple[str, ...] = (),
        least_share: float = 0.5,
        request_tokens: float | None = None,
        encoder_cache: int = 2048,
        max_staleness: float = 5.0,
        expect_seconds: float = 5.0,
        token_ids_kwarg: str | None = None,
    ) -> None:
        """Take the keyword arguments of the deployment's ``request_router_kwargs``."""
        settings = VllmSettings.from_args(engine_args)
        names = tuple(served_names) or settings.served_names or (model,)
        source = ModelSource(
            model, names, backend=backend, model_id=settings.model, engine_settings=settings
        )
        self._reader = PromptReader(source)
        self._weights = Weights(request=request_tokens, least_share=least_share)
        self._token_ids_kwarg = token_ids_kwarg
        self._caches = ReplicaCaches(
            max_staleness=max_staleness, expect_seconds=expect_seconds, encoder_cache=encoder_cache
        )
        self._block_size: int | None = None
        self._decisions = Counter(
            _DECISIONS,
            "Requests by why a replica was picked: prefix or load; and why there was no prefix",
            ("deployment", "picked_by", "reason"),
        )
        self._decisions.set_default_tags({"deployment": self._deployment_id.name})

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Follow the events of these replicas, and forget the blocks of others."""
        super().update_replicas(replicas)
        self._follow()

    def on_replica_actor_died(self, replica_id: Any) -> None:
        """Forget the blocks of a replica."""
        super().on_replica_actor_died(replica_id)
        self._follow()

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: Any, result: object
    ) -> None:
        """Expect the blocks at the replica that got the request; the preferred one may be full."""
        self._caches.routed(_request(pending_request), replica_id.unique_id)

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The replica for a request, and after it all others, in case it accepts no more."""
        if not candidate_replicas:
            return []
        load = {replica: self._load(replica) for replica in candidate_replicas}
        candidates = random.sample(candidate_replicas, len(candidate_replicas))  # for equal loads
        prompt, hashes, reason = self._prompt(pending_request)
        if pending_request is None or prompt is None:
            best = min(candidates, key=load.__getitem__)
        else:
            states = self._states(load, candidates, hashes)
            best, least, follows = pick(prompt, states, self._weights)
            following = any(
                cost(prompt, state, self._weights).compute < prompt.tokens
                for state in states.values()
            )
            reason = "" if follows else "imbalanced" if following else "no_prefix"
            encoded = [item for item in prompt.items if item.end > prompt.tokens - least.compute]
            self._caches.expect(_request(pending_request), _name(best), hashes, encoded)
        self._decisions.inc(tags={"picked_by": "load" if reason else "prefix", "reason": reason})
        return [[best], [replica for replica in candidates if replica is not best]]

    def look_up(self, routing: Routing, block_size: int) -> tuple[bytes, ...]:
        """The hashes by which a prompt is looked up."""
        return tuple(routing.block_hashes(block_size=block_size))

    def _prompt(
        self, pending: PendingRequest | None
    ) -> tuple[Prompt | None, tuple[bytes, ...], str]:
        """The prompt of a request and its hashes; or None, no hashes, and the reason."""
        block_size = self._caches.block_size() or self._block_size
        if block_size is None or pending is None:
            return None, (), "no_events"
        try:
            routing = self._routing(pending)
            if self._token_ids_kwarg is not None:
                pending.kwargs[self._token_ids_kwarg] = routing.unexpanded_token_ids
            hashes = self.look_up(routing, block_size)
            return Prompt.of(routing, block_size), hashes, ""
        except (NoRoutingError, InexactError) as error:
            return None, (), str(error.reason)

    def _states(
        self,
        load: Mapping[RunningReplica, int],
        candidates: Sequence[RunningReplica],
        hashes: Sequence[bytes],
    ) -> dict[RunningReplica, WorkerState]:
        """The state of each replica, in the order of the candidates."""
        held = self._caches.longest_prefixes(hashes)
        at_hand = self._caches.longest_prefixes(hashes, medium="GPU")
        states = {}
        for replica in candidates:
            name = _name(replica)
            encoded = self._caches.encoder(name)
            states[replica] = WorkerState(held[name], at_hand[name], load[replica], encoded)
        return states

    def _routing(self, pending: PendingRequest) -> Routing:
        """The routing of the body."""
        body = next(filter(None, map(_body, pending.args)), None)
        if body is None:
            raise NoRoutingError("no_body", "no argument has messages or a prompt")
        return self._reader.routing(body)

    def _load(self, replica: RunningReplica) -> int:
        """The number of a replica's requests in Ray's count, or else of those sent from here."""
        length = self.replica_queue_len_cache.get(replica.replica_id)
        return self._caches.sent(_name(replica)) if length is None else length

    def _follow(self) -> None:
        replicas: dict[str, Endpoints | None] = {}
        for replica in self.curr_replicas.values():
            reported, endpoints = replica.routing_stats.get(EVENTS_KEY), None
            if reported is not None:
                endpoints = Endpoints(reported["endpoint"], reported.get("replay_endpoint"))
                self._block_size = reported.get("block_size")
            replicas[_name(replica)] = endpoints
        self._caches.follow(replicas)


def _request(pending: PendingRequest) -> str:
    request: str = pending.metadata.internal_request_id
    return request


def _name(replica: RunningReplica) -> str:
    name: str = replica.replica_id.unique_id
    return name


def _body(argument: object) -> Mapping[str, Any] | None:
    """The fields of a request; None for another argument."""
    if isinstance(argument, Mapping):
        body: Mapping[str, Any] = argument
    elif isinstance(argument, BaseModel):
        body = {name: getattr(argument, name) for name in argument.model_fields_set}
    else:
        body = getattr(argument, "__dict__", {})
    return body if any(body.get(name) for name in _BODY_FIELDS) else None
