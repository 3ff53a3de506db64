"""The causes of announced blocks that differ from the predicted ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mmroute.answering.pipeline import answer
from mmroute.answering.routing import Routing
from mmroute.hashing.hashes import Hashes, HashSettings
from mmroute.lab.parity.causes import Cause, Remedy, taken_out
from mmroute.lab.parity.events.chains import Chain
from mmroute.lab.parity.events.hashings import HashedWith, tagged
from mmroute.lab.parity.identity_remedies import identity_remedy
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.request import Lora, Request

_TAGGED_SINCE: Final = "0.31"
_SEED: Final = "PYTHONHASHSEED"


def key_remedies(
    model: ResolvedModel, request: Request, routing: Routing, chain: Chain, engine_model: str
) -> Iterator[Remedy]:
    """The causes by which the engine's extra keys differ from the predicted ones."""
    names, salts = items_and_salts(chain)
    lora = None if routing.lora is None else routing.lora.name
    if chain.lora_name != lora:
        yield Remedy(
            Cause.LORA,
            f"The engine answered with {_adapter(chain.lora_name)}, and mmroute with "
            f"{_adapter(lora)}: give the adapter and its path in the request's `lora`.",
        )
    if salts != ([routing.cache_salt] if routing.cache_salt else []):
        yield Remedy(
            Cause.CACHE_SALT,
            f"The engine's cache salt is {salts}, and the request's is {routing.cache_salt!r}.",
        )
    ours = [identity.value for identity in routing.identities if identity is not None]
    # The last items of a prompt may be after its last full block.
    if names == ours[: len(names)]:
        return

    def fits(other: ResolvedModel) -> bool:
        found = [i.value for i in answer(other, request).identities if i is not None]
        return names == found[: len(names)]

    yield identity_remedy(model, fits, engine_model)


def items_and_salts(chain: Chain) -> tuple[list[str], list[str]]:
    """The identities of items in their order, and the first block's keys except the adapter."""
    names: list[str] = []
    salts: list[str] = []
    for at, keys in enumerate(chain.keys or ()):
        for key in keys or ():
            if isinstance(key, tuple):
                # Else it began in a block before, or begins in the next one.
                if 0 <= key[1] < chain.block_size:
                    names.append(key[0])
            elif at == 0 and key != chain.lora_name:
                salts.append(key)
    return names, salts


def _adapter(name: str | None) -> str:
    return "no adapter" if name is None else f"the adapter {name!r}"


def block_size_remedy(size: int, known: HashSettings) -> Remedy:
    """The cause of announced blocks of another size."""
    used = "was told none" if known.block_size is None else f"used {known.block_size}"
    option = "--prefix-match-unit" if known.chosen_by_engine else "--block-size"
    return Remedy(
        Cause.BLOCK_SIZE,
        f"The engine's blocks have {size} tokens, and mmroute {used}.",
        f"{option} {size}",
    )


def expected_settings(hashing: Hashes, lora: Lora | None) -> HashedWith:
    """The settings with which mmroute hashes."""
    known = hashing.settings
    path = None if lora is None else lora.path
    return HashedWith(known.algorithm, known.seed, tagged(hashing), path)


def setting_remedies(found: HashedWith, expected: HashedWith) -> Iterator[Remedy]:
    """The settings of the engine in which its hashes differ from the expected ones."""
    if found.algorithm != expected.algorithm:
        yield Remedy(
            Cause.ALGORITHM,
            f"The hashes are those of {found.algorithm}, not of {expected.algorithm}.",
            f"--prefix-caching-hash-algo {found.algorithm}",
        )
    if found.seed != expected.seed:
        seed, ours = found.seed or "not set", expected.seed or "none"
        yield Remedy(
            Cause.SEED,
            f"The engine's {_SEED} is {seed}, and mmroute used {ours}.",
            taken_out(_SEED) if found.seed is None else f"{_SEED}={found.seed}",
        )
    if found.tagged != expected.tagged:
        versions = f"since {_TAGGED_SINCE}" if found.tagged else f"before {_TAGGED_SINCE}"
        yield Remedy(
            Cause.LAYOUT,
            f"The hashes have the layout of vLLM {versions}: give the version that runs with "
            "--backend vllm==VERSION.",
        )


def lookahead_remedy(found: int, expected: int) -> Remedy:
    """The cause of hashes that cover another number of lookahead tokens."""
    return Remedy(
        Cause.LOOKAHEAD,
        f"The engine's hashes cover {found} tokens behind their block (speculative decoding), and "
        f"were taken to cover {expected}: --engine-args with its --speculative-config tells.",
    )


def unexplained_remedy(chain: Chain, otherwise: str) -> Remedy:
    """The cause of hashes that no setting that was tried gives."""
    if chain.lora_name is not None:
        return Remedy(
            Cause.LORA,
            f"The hashes depend on the path of the adapter {chain.lora_name!r}, and no known path "
            "gives them: give it as lora_path in the request or by --lora-modules.",
        )
    return Remedy(Cause.HASHES_ONLY, otherwise)
