"""How an engine is started and shrunk, asked and heard, to be compared with mmroute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from mmroute.engine import DEFAULT
from mmroute.plugins import Registry

if TYPE_CHECKING:
    from mmroute.answering.routing import Routing
    from mmroute.engines.running import RunningEngine
    from mmroute.errors import Reason
    from mmroute.hashing import BlockHashes, PageHashes
    from mmroute.kv_events import BlockIndex, WorkerRank
    from mmroute.lab.engines.starting import Started
    from mmroute.lab.parity.cases import Served
    from mmroute.lab.parity.causes import Change
    from mmroute.lab.parity.comparison import Finding
    from mmroute.lab.parity.events.chains import Chain
    from mmroute.model.resolved import ResolvedModel


class Prover(Protocol):
    """A module that starts an engine on a shrunken copy of a model."""

    LABEL: str
    """The engine's name in sentences."""

    NEWEST: str
    """The version that is run where none is given."""

    def parse_command(self, arguments: str, *, config: str | None) -> Any:
        """The engine's command line, read."""

    def engine_environment(self, version: str, say: Callable[[str], None]) -> Path:
        """The Python of an environment with the engine, which is made if there is none."""

    def installed_version(self, python: Path) -> str:
        """The version of the engine that a Python has."""

    def start_engine(
        self,
        model: str,
        given: Any,
        python: Path,
        directory: Path,
        *,
        revision: str | None = None,
        quickly: bool = True,
        say: Callable[[str], None],
    ) -> Started:
        """Start it."""

    def adopted(self, started: Started) -> str:
        """The command line of a running engine, with what it chose itself."""


class Judge(Protocol):
    """The same module: how the engine is asked, and its events compared with predictions."""

    SPECULATION: str
    """The option under which hashes cover tokens behind their block."""

    OTHER_HASHES: str
    """What to look for where blocks have the same tokens and other hashes."""

    HARMFUL: frozenset[Reason]
    """The reasons for which mmroute refuses requests, where the engine ends or hangs at some."""

    UNKNOWN_HASHES: str
    """Why the hashes of some announced blocks cannot be computed again."""

    def generation(self, request: Mapping[str, Any], model: str) -> tuple[str, dict[str, Any]]:
        """The route and the body by which a request is asked for one token."""

    def served(self, answer: Any) -> Served:
        """What the engine's answer tells of the prompt."""

    def event_ids(self, routing: Routing) -> Any:
        """The token IDs of an exact answer as events carry them, shape (n,)."""

    def event_keys(self, routing: Routing, block_size: int) -> Sequence[Any]:
        """The extra keys of each full block as events carry them."""

    def lookahead(self, routing: Routing) -> int:
        """The number of tokens behind a block that its hash covers."""

    def reused_tokens(
        self,
        model: ResolvedModel,
        index: BlockIndex,
        routing: Routing,
        hashes: BlockHashes | PageHashes,
    ) -> Mapping[WorkerRank, int | None]:
        """The number of leading tokens that each rank takes from its cache; None if not known."""

    def rehashed(self, model: ResolvedModel, chain: Chain) -> list[int] | None:
        """The hashes of a chain's tokens and keys; None if they depend on what is not known."""

    def unpredicted(self, model: ResolvedModel, routing: Routing, chain: Chain) -> str:
        """What is wrong in the blocks of an answer without hashes; empty if nothing is.

        Raises `InexactError` where that cannot be told.
        """

    def told_by_events(self, model: ResolvedModel, chains: Sequence[Chain]) -> list[Change]:
        """The settings of hashes, where those that the events tell are not the model's."""

    def changes(
        self, model: ResolvedModel, findings: Iterable[Finding], running: RunningEngine | None
    ) -> Iterator[Change]:
        """The changes of one option to try, those first whose values the engine tells."""


PROVERS: Final = Registry(
    "prover", "mmroute.lab.engines", {"vllm": "vllm", "sglang": "sglang"}, "mmroute.lab.prove"
)
"""The engines that can be started and judged: name of the engine -> a `Prover` and `Judge`."""


def judge_of(model: ResolvedModel) -> Judge:
    """The judge of the engine that a model is loaded for; vLLM's, if the engine has none."""
    return judge_named(model.engine.release.name)


def judge_named(engine: str) -> Judge:
    """The judge of an engine; vLLM's, if it has none."""
    found: Judge = PROVERS.find(engine if engine in PROVERS.entries else DEFAULT)
    return found
