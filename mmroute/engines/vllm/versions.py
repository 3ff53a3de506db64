"""Earlier versions of vLLM: each a `replace` of its neighbour.

Token IDs and ranges are those of the newest version. Identities and block hashes differ, and so
does the orientation of images. Source: the wheels of 0.30.0, 0.28.0, 0.26.0, 0.23.0, 0.18.0
and 0.15.0; docs/versions.md says what was run of each, and what was only read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from mmroute.engines.profile import EngineProfile
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.engines.vllm.older_blocks import hash_older_blocks, identity_keys, untagged_keys
from mmroute.engines.vllm.older_identity import framed_identity, unframed_identity
from mmroute.engines.vllm.profile import VLLM
from mmroute.errors import ModelError, Reason, did_you_mean

_HASH_AT_RANDOM: Final = partial(hash_older_blocks, random_root=True)

_V0_32: Final = replace(
    VLLM,
    version="0.32.0",
    era="0.31 to 0.32",
    proved=frozenset({"0.31.0", "0.32.0"}),
    identify=framed_identity,
    hashing=VllmHashes(),
)
_V0_30: Final = replace(
    _V0_32,
    version="0.30.0",
    era="0.29 to 0.30",
    proved=frozenset({"0.29.0", "0.30.0"}),
    identify=unframed_identity,
    hashing=VllmHashes(keys=untagged_keys, hash=hash_older_blocks),
)
_V0_28: Final = replace(
    _V0_30,
    version="0.28.0",
    era="0.27 to 0.28",
    proved=frozenset({"0.27.1", "0.28.0"}),
    read=frozenset({"0.27.0"}),
    takes_metadata=False,
    hashing=VllmHashes(keys=untagged_keys, hash=_HASH_AT_RANDOM),
)
_V0_26: Final = replace(
    _V0_28,
    version="0.26.0",
    era="0.24 to 0.26",
    proved=frozenset({"0.24.0", "0.25.1", "0.26.0"}),
    read=frozenset({"0.25.0"}),
    identify=partial(unframed_identity, covers_conversion=False),
)
_V0_23: Final = replace(
    _V0_26,
    version="0.23.0",
    era="0.19 to 0.23",
    proved=frozenset({"0.19.1", "0.20.2", "0.21.0", "0.22.1", "0.23.0"}),
    read=frozenset({"0.19.0", "0.20.0", "0.20.1", "0.22.0"}),
    applies_exif_orientation=False,
)
_V0_18: Final = replace(
    _V0_23,
    version="0.18.0",
    era="0.16 to 0.18",
    proved=frozenset({"0.18.1"}),
    read=frozenset({"0.16.0", "0.17.0", "0.17.1", "0.18.0"}),
    hashing=VllmHashes(keys=identity_keys, hash=_HASH_AT_RANDOM),
)
_V0_15: Final = replace(
    _V0_18,
    version="0.15.0",
    era="0.13 to 0.15",
    proved=frozenset(),
    read=frozenset({"0.13.0", "0.14.0", "0.14.1", "0.15.0", "0.15.1"}),
    identify=partial(unframed_identity, covers_conversion=False, sorts_arguments=False),
)

ERAS: Final = (VLLM, _V0_32, _V0_30, _V0_28, _V0_26, _V0_23, _V0_18, _V0_15)
"""The newest first."""


def find_version(version: str) -> EngineProfile:
    """The profile of a release such as ``0.28.0``, or of all releases of ``0.28``.

    Raises:
        ModelError: `unknown_backend`: the release is not known.
    """
    for profile in ERAS:
        releases = profile.proved | profile.read
        if version in releases or version in {name.rpartition(".")[0] for name in releases}:
            return replace(profile, version=version)
    known = [f"vllm=={name}" for profile in ERAS for name in sorted(profile.proved | profile.read)]
    raise ModelError(
        Reason.UNKNOWN_BACKEND,
        f"vLLM {version!r} is not known: there are the releases 0.13.0 to {VLLM.version}"
        f"{did_you_mean(f'vllm=={version}', known)}",
    )
