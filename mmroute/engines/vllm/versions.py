"""Earlier versions of vLLM: each a `replace` of its neighbour.

Token IDs and ranges are those of 0.33.0; what differs is how identities and block hashes are made,
and whether an image is turned upright. Source: the wheels of 0.30.0, 0.28.0, 0.26.0, 0.23.0, 0.18.0
and 0.15.0; docs/versions.md says what was run of each, and what was only read.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Final

from mmroute.engines.profile import EngineProfile
from mmroute.engines.vllm.older_identity import framed_identity, unframed_identity
from mmroute.engines.vllm.profile import VLLM
from mmroute.errors import ModelError, Reason
from mmroute.hashing import KeyForm

__all__ = ["ERAS", "find_version"]

_VERSION: Final = re.compile(r"0\.(\d{1,3})(\.\d{1,3})?")

_V0_32: Final = replace(
    VLLM,
    version="0.32.0",
    era="0.31 to 0.32",
    proved=frozenset({"0.31.0", "0.32.0"}),
    identify=framed_identity,
)
_V0_30: Final = replace(
    _V0_32,
    version="0.30.0",
    era="0.29 to 0.30",
    proved=frozenset({"0.29.0", "0.30.0"}),
    identify=unframed_identity,
    hashing=replace(_V0_32.hashing, keys=KeyForm.UNTAGGED),
)
_V0_28: Final = replace(
    _V0_30,
    version="0.28.0",
    era="0.27 to 0.28",
    proved=frozenset({"0.27.1", "0.28.0"}),
    hashing=replace(_V0_30.hashing, random_root=True),
)
_V0_26: Final = replace(
    _V0_28,
    version="0.26.0",
    era="0.24 to 0.26",
    proved=frozenset({"0.24.0", "0.25.1", "0.26.0"}),
    identify=partial(unframed_identity, covers_conversion=False),
)
_V0_23: Final = replace(
    _V0_26,
    version="0.23.0",
    era="0.19 to 0.23",
    proved=frozenset({"0.19.1", "0.20.2", "0.21.0", "0.22.1", "0.23.0"}),
    applies_exif_orientation=False,
)
_V0_18: Final = replace(
    _V0_23,
    version="0.18.0",
    era="0.16 to 0.18",
    proved=frozenset({"0.18.1"}),
    hashing=replace(_V0_23.hashing, keys=KeyForm.IDENTITIES),
)
_V0_15: Final = replace(
    _V0_18,
    version="0.15.0",
    era="0.13 to 0.15",
    proved=frozenset(),
    identify=partial(unframed_identity, covers_conversion=False, sorts_arguments=False),
)

ERAS: Final = (
    (range(33, 34), VLLM),
    (range(31, 33), _V0_32),
    (range(29, 31), _V0_30),
    (range(27, 29), _V0_28),
    (range(24, 27), _V0_26),
    (range(19, 24), _V0_23),
    (range(16, 19), _V0_18),
    (range(13, 16), _V0_15),
)


def find_version(version: str) -> EngineProfile:
    """The profile of a version such as ``0.28`` or ``0.28.1``.

    Raises:
        ModelError: `unknown_backend`: it is older or newer than those known.
    """
    found = _VERSION.fullmatch(version)
    minor = int(found[1]) if found else -1
    for minors, profile in ERAS:
        if minor in minors:
            return replace(profile, version=version)
    raise ModelError(
        Reason.UNKNOWN_BACKEND,
        f"vLLM {version!r} is not known: there are 0.13 to 0.33, such as 'vllm==0.28'.",
    )
