"""Earlier versions of vLLM: each a `replace` of its neighbour.

Token IDs and ranges are those of the newest version. Identities and block hashes differ, and so
does the orientation of images. Source: the wheels of 0.30.0, 0.28.0, 0.26.0, 0.23.0, 0.18.0
and 0.15.0; docs/versions.md says what was run of each, and what was only read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from mmroute.engine import Naming
from mmroute.engines.vllm.engine import VllmEngine
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.engines.vllm.identity import check_names
from mmroute.engines.vllm.older import (
    framed_identity,
    hash_older_blocks,
    identity_keys,
    unframed_identity,
    untagged_keys,
)
from mmroute.engines.vllm.profile import VLLM
from mmroute.release import Release, era_of

_HASH_AT_RANDOM: Final = partial(hash_older_blocks, random_root=True)

_V0_32: Final = replace(
    VLLM,
    release=Release(
        "vllm", "0.32.0", "0.31 to 0.32", "vllm", proved=frozenset({"0.31.0", "0.32.0"})
    ),
    naming=Naming(framed_identity, check_names),
    hashes=VllmHashes(),
)
_V0_30: Final = replace(
    _V0_32,
    release=Release(
        "vllm", "0.30.0", "0.29 to 0.30", "vllm", proved=frozenset({"0.29.0", "0.30.0"})
    ),
    naming=Naming(unframed_identity, check_names),
    hashes=VllmHashes(keys=untagged_keys, hash=hash_older_blocks),
)
_V0_28: Final = replace(
    _V0_30,
    release=Release(
        "vllm",
        "0.28.0",
        "0.27 to 0.28",
        "vllm",
        proved=frozenset({"0.27.1", "0.28.0"}),
        read=frozenset({"0.27.0"}),
    ),
    limits=replace(VLLM.limits, takes_metadata=False),
    hashes=VllmHashes(keys=untagged_keys, hash=_HASH_AT_RANDOM),
)
_V0_26: Final = replace(
    _V0_28,
    release=Release(
        "vllm",
        "0.26.0",
        "0.24 to 0.26",
        "vllm",
        proved=frozenset({"0.24.0", "0.25.1", "0.26.0"}),
        read=frozenset({"0.25.0"}),
    ),
    naming=Naming(partial(unframed_identity, covers_conversion=False), check_names),
)
_V0_23: Final = replace(
    _V0_26,
    release=Release(
        "vllm",
        "0.23.0",
        "0.19 to 0.23",
        "vllm",
        proved=frozenset({"0.19.1", "0.20.2", "0.21.0", "0.22.1", "0.23.0"}),
        read=frozenset({"0.19.0", "0.20.0", "0.20.1", "0.22.0"}),
    ),
    limits=replace(_V0_26.limits, applies_exif_orientation=False),
)
_V0_18: Final = replace(
    _V0_23,
    release=Release(
        "vllm",
        "0.18.0",
        "0.16 to 0.18",
        "vllm",
        proved=frozenset({"0.18.1"}),
        read=frozenset({"0.16.0", "0.17.0", "0.17.1", "0.18.0"}),
    ),
    hashes=VllmHashes(keys=identity_keys, hash=_HASH_AT_RANDOM),
)
_V0_15: Final = replace(
    _V0_18,
    release=Release(
        "vllm", "0.15.0", "0.13 to 0.15", "vllm",
        proved=frozenset(),
        read=frozenset({"0.13.0", "0.14.0", "0.14.1", "0.15.0", "0.15.1"}),
    ),
    naming=Naming(
        partial(unframed_identity, covers_conversion=False, sorts_arguments=False), check_names
    ),
)  # fmt: skip

ERAS: Final = (VLLM, _V0_32, _V0_30, _V0_28, _V0_26, _V0_23, _V0_18, _V0_15)
"""The newest first."""


def find_version(version: str) -> VllmEngine:
    """See `era_of`."""
    return era_of("vLLM", version, ERAS)
