"""Earlier versions of SGLang: each a `replace` of its neighbour.

A spec says in a table such as ``[engine."sglang<0.5.22"]`` what differs for a family, and the
lists in this folder say which version has an option or an architecture.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mmroute.engines.sglang.encoding import Kept
from mmroute.engines.sglang.hashes import SglangHashes
from mmroute.engines.sglang.older import check_tokenizer, with_text, with_whole_tools
from mmroute.engines.sglang.profile import SGLANG, SglangEngine
from mmroute.hashing import pad_value_ids
from mmroute.release import Release, era_of

_V0_5_22: Final = replace(
    SGLANG,
    release=Release("sglang", "0.5.22", "0.5.22", "sglang 0.5.22", proved=frozenset({"0.5.22"})),
    hashes=SglangHashes(pads=pad_value_ids, shows_adapters=False),
    adapted=with_whole_tools,
)
_V0_5_21: Final = replace(
    _V0_5_22,
    release=Release("sglang", "0.5.21", "0.5.21", "sglang 0.5.21", proved=frozenset({"0.5.21"})),
    transformers="5.12.1",
    adapted=with_text,
    kept=Kept(ids=False),
    check_files=check_tokenizer,
    has_dynamo_events=False,
)
_V0_5_20: Final = replace(
    _V0_5_21,
    release=Release("sglang", "0.5.20", "0.5.20", "sglang 0.5.20", proved=frozenset({"0.5.20"})),
    kept=Kept(ids=False, control_tokens=False),
)

ERAS: Final = (SGLANG, _V0_5_22, _V0_5_21, _V0_5_20)
"""The newest first."""


def find_version(version: str) -> SglangEngine:
    """See `era_of`."""
    return era_of("SGLang", version, ERAS)
