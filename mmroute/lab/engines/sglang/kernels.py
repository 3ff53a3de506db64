"""Stands in for ``sgl_kernel`` on a CPU, for which SGLang's index of packages has no wheel.

The engine's Python runs this file, without mmroute. What models need is here in plain PyTorch,
and what is missing says so once it is called. Weights are random, and generated text means nothing,
so layers with a state keep none: they hand their values on.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

import torch


def _assign_pages(
    pool_indices: Any, requests_to_tokens: Any, starts: Any, ends: Any, places: Any, *_: object
) -> None:
    """Enter the places of new tokens into the rows of their requests."""
    taken = 0
    rows = zip(pool_indices.tolist(), starts.tolist(), ends.tolist(), strict=False)
    for row, start, end in rows:
        new = places[taken : taken + end - start]
        requests_to_tokens[row, start:end] = new.to(requests_to_tokens.dtype)
        taken += end - start


def _normalize(x: Any, weight: Any, eps: float) -> None:
    heads = x.unflatten(-1, (-1, weight.numel()))
    wide = heads.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    heads.copy_((wide * scale * weight.float()).to(x.dtype))


def _gate(x: Any, gate: Any, *_: object) -> None:
    x.mul_(torch.sigmoid(gate.reshape(x.shape)))


def _normalize_with_gate(  # noqa: PLR0917 - as the kernel is called
    q_gate: Any, k: Any, q_weight: Any, k_weight: Any, eps: float, head: int, heads: int
) -> tuple[Any, Any, Any]:
    """Normalized queries and keys, and the gate that stands behind each head's queries."""
    q, gate = q_gate.reshape(-1, heads, 2 * head).chunk(2, dim=-1)
    q, k = q.clone(), k.clone()
    _normalize(q, 1 + q_weight, eps)
    _normalize(k, 1 + k_weight, eps)
    return q, k, gate.contiguous()


def _normalize_and_gate(x: Any, weight: Any, gate: Any, eps: float) -> Any:
    x = x.clone()
    _normalize(x, weight, eps)
    return x * torch.nn.functional.silu(gate)


def _split(  # noqa: PLR0917 - as the kernel is called
    qkvz: Any, ba: Any, key_heads: int, value_heads: int, key: int, value: int
) -> Any:
    """Queries, keys and values; gates; and the two inputs of each head's decay."""
    widths = [key_heads * key, key_heads * key, value_heads * value, value_heads * value]
    gates = qkvz[:, sum(widths[:3]) :].reshape(-1, value_heads, value)
    decays = ba.split([value_heads, value_heads], dim=-1)
    return qkvz[:, : sum(widths[:3])].contiguous(), gates, *(d.contiguous() for d in decays)


def _decays(log: Any, a: Any, b: Any, bias: Any) -> tuple[Any, Any]:
    decay = -torch.exp(log.float()) * torch.nn.functional.softplus(a.float() + bias)
    return decay.unsqueeze(0), torch.sigmoid(b.float()).unsqueeze(0)


_HERE: dict[str, Callable[..., Any]] = {
    "assign_req_to_token_pool_cpu": _assign_pages,
    "causal_conv1d_fn_cpu": lambda x, *_, **__: x,
    "causal_conv1d_update_cpu": lambda x, *_, **__: x,
    "chunk_gated_delta_rule_cpu": lambda *, v, **_: (v, None, None),
    "fused_gdn_gating_cpu": _decays,
    "fused_qk_gemma_rmsnorm_with_gate_cpu": _normalize_with_gate,
    "fused_qkvzba_split_reshape_cat_contiguous_cpu": _split,
    "fused_rmsnorm_gated_cpu": _normalize_and_gate,
    "fused_sigmoid_gating_delta_rule_update_cpu": lambda *, v, **_: v,
    "fused_sigmoid_mul_cpu": _gate,
    "init_cpu_threads_env": lambda *_: "",
    "initialize": lambda *_: None,
}


# Models do without these where they are missing.
_OPTIONAL = ("fused_qk_norm_cpu", "fused_qk_norm_rope_cpu")


def _found(name: str) -> Callable[..., Any]:
    """The kernel of a name; one that is missing raises where it is called."""
    if name in _OPTIONAL or (name not in _HERE and not name.endswith("_cpu")):
        raise AttributeError(name)

    def missing(*_: object, **__: object) -> None:
        raise NotImplementedError(f"sgl_kernel.{name} has no stand-in")

    return _HERE.get(name, missing)


def install() -> None:
    """Let ``import sgl_kernel`` and ``torch.ops.sgl_kernel`` find the kernels above."""
    module = types.ModuleType("sgl_kernel")
    module.__spec__ = importlib.machinery.ModuleSpec("sgl_kernel", None, is_package=True)
    vars(module)["__getattr__"] = _found
    sys.modules |= dict.fromkeys(("sgl_kernel", "sgl_kernel.mamba"), module)
    setattr(torch.ops, "sgl_kernel", module)  # noqa: B010 - its type knows no such attribute
