"""The size of SGLang's pages, by the backends of its attention.

Source: SGLang 0.5.23 ``srt/arg_groups/overrides.py`` (`_mla_backend_page_constraints`,
`_fa4_page_constraint`, `_intel_xpu_page_constraint`, `_page_size_default`),
``srt/disaggregation/kv_events.py`` (`kv_event_block_size_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class _Rule(NamedTuple):
    backends: frozenset[str]
    options: tuple[str, ...]  # the options that may name them
    sizes: tuple[int, ...]  # those that they keep


BACKENDS: Final = (
    "attention_backend", "decode_attention_backend", "prefill_attention_backend",
    "speculative_draft_attention_backend",
)  # fmt: skip
"""The options that name backends."""
_ANY: Final = BACKENDS[:3]
# In the order of the engine: each takes 64 in place of a size that it does not keep.
_RULES: Final = (
    _Rule(frozenset({"flashmla"}), BACKENDS[:2], (64,)),
    _Rule(frozenset({"trtllm_mla"}), BACKENDS[:2], (32, 64)),
    _Rule(frozenset({"cutedsl_mla", "tokenspeed_mla"}), _ANY, (32, 64)),
    _Rule(frozenset({"trtllm_mha"}), BACKENDS, (16, 32, 64, 128)),
    _Rule(frozenset({"hpc_ops"}), _ANY, (64,)),
)
_TAKEN: Final = 64
_PLAIN: Final = frozenset({
    "aiter", "fa3", "flashinfer", "intel_amx", "torch_native", "triton",
})  # fmt: skip
"""They keep any size, and take 1 if none is given."""
_KEPT: Final[Mapping[str | None, tuple[int, ...]]] = {
    None: (16, 32, 64, 128),  # by whatever backend a GPU takes by itself
    "fa4": (128,),
    "intel_xpu": (64, 128),
}


ANY_SIZE: Final = "torch_native"
"""A backend that keeps any size."""


def has_rule(backend: object) -> bool:
    """Whether it is known which sizes a backend keeps."""
    return backend in _PLAIN or backend in _KEPT or any(backend in r.backends for r in _RULES)


def page_size_of(options: Mapping[str, Any]) -> int | None:
    """The number of tokens in a page of events; None where the GPU or the model decides it."""
    given: int | None = options.get("page_size")
    width: int = options.get("dcp_size", 1)
    named = {options.get(name) for name in _ANY} - {None}
    ruled = [
        rule for rule in _RULES if any(options.get(name) in rule.backends for name in rule.options)
    ]
    size = given
    for rule in ruled:
        size = size if size in rule.sizes else _TAKEN
    if size is not None and ruled:
        return width * size
    backend = options.get("attention_backend")
    if backend in _PLAIN and named <= _PLAIN:
        return width * (given or 1)
    kept = given in _KEPT.get(backend, ()) and named <= {backend}
    return width * given if given is not None and kept else None
