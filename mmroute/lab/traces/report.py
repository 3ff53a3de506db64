"""An analysis as plain values for JSON, and as tables for a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from mmroute.lab.traces.analysis import Analysis, Loss, Reading
from mmroute.lab.traces.reuse import Bin
from mmroute.lab.traces.suspects import Suspect

Table: TypeAlias = tuple[Sequence[str], list[tuple[str, ...]]]
"""The names of the columns, and the rows."""

_PERCENTILES: Final = (50, 99)


def as_dict(
    analysis: Analysis,
    command: Callable[[Suspect], str],
    *,
    engine: str | None,
    show_text: bool,
) -> dict[str, Any]:
    """The values of a report."""
    reading, fleet = analysis.reading, analysis.fleet
    curve = reading.curve
    return {
        "engine": engine,
        "requests": reading.requests,
        "refused": {
            reason: {"count": refused.count, "lines": refused.lines}
            | ({"message": refused.message} if show_text else {})
            for reason, refused in reading.refused.items()
        },
        "tokens": curve.tokens,
        "output_tokens": reading.output_tokens,
        "items": dict(reading.items),
        "item_tokens": reading.item_tokens,
        "block_size": reading.block_size,
        "blocks": curve.blocks,
        "different_blocks": curve.different,
        "preprocessing_us": _costs(reading),
        "one_cache": [{"blocks": n, "hit_rate": rate} for n, rate in curve.hit_rates()],
        "one_cache_over_time": _over_time(curve.timeline.bins),
        "workers": fleet.workers,
        "worker_blocks": fleet.blocks,
        "encoder_tokens": fleet.encoder_tokens,
        "policies": [
            dataclasses.asdict(outcome)
            | {
                "not_kept": curve.hit_rates()[-1][1] - outcome.hit_rate,
                "over_time": _over_time(outcome.over_time),
            }
            for outcome in analysis.outcomes
        ],
        "suspects": len(reading.suspects),
        "explained": analysis.explained,
        "losses": [_loss(loss, command(loss.example), show_text) for loss in analysis.losses],
    }


def facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    """The counts of a trace, each with its name."""
    items = report["items"]
    counted = {
        "requests with an exact answer": report["requests"],
        "tokens of prompts": report["tokens"],
        **({"tokens of answers": report["output_tokens"]} if report["output_tokens"] else {}),
        **{f"{modality}s": count for modality, count in items.items()},
        **({"tokens of items": report["item_tokens"]} if items else {}),
        f"blocks of {report['block_size']} tokens": report["blocks"],
        "different blocks": report["different_blocks"],
    }
    return [(name, f"{count:,}") for name, count in counted.items()]


def cache_table(report: dict[str, Any]) -> Table:
    """The hit rates of one cache, by its size."""
    curve = report["one_cache"]
    return ("blocks", "hit rate"), [(f"{e['blocks']:,}", f"{e['hit_rate']:.1%}") for e in curve]


def policy_table(report: dict[str, Any]) -> Table:
    """The outcome of each policy; columns about encoders only if the trace has items."""
    names = ("routing", "hit rate", "not kept", "computed", "busiest", "encoded", "encoder hits")
    rows = []
    for each in report["policies"]:
        hits = each["items_in_encoder"]
        rows.append((
            each["policy"],
            f"{each['hit_rate']:.1%}",
            f"{each['not_kept']:.1%}",
            f"{each['computed']:,}",
            f"{each['imbalance']:.2f}",
            f"{each['items_encoded']:,}",
            f"{hits / max(1, hits + each['items_encoded']):.1%}",
        ))  # fmt: skip
    shown = len(names) if report["items"] else len(names) - 2
    return names[:shown], [row[:shown] for row in rows]


def loss_table(report: dict[str, Any]) -> Table:
    """The loss by each cause."""
    total = report["tokens"]
    return ("cause", "lost tokens", "of all", "requests"), [
        (e["cause"], f"{e['tokens']:,}", f"{e['tokens'] / total:.1%}", f"{e['pairs']:,}")
        for e in report["losses"]
    ]


def _costs(reading: Reading) -> dict[str, float] | None:
    """The processor time that mmroute takes for a request; None if it computed none."""
    costs = np.frombuffer(reading.costs, dtype=np.uintc)
    if not costs.any():
        return None
    percentiles = np.percentile(costs, _PERCENTILES)
    named = {f"p{p}": float(each) for p, each in zip(_PERCENTILES, percentiles, strict=True)}
    return {"mean": float(costs.mean()), **named}


def _over_time(bins: list[Bin]) -> list[dict[str, float | None]]:
    return [
        {
            "timestamp": each.timestamp,
            "requests": each.requests,
            "hit_rate": each.cached / max(1, each.tokens),
        }
        for each in bins
    ]


def _loss(loss: Loss, command: str, show_text: bool) -> dict[str, Any]:
    explanation = loss.explanation
    example: dict[str, Any] = {
        "first_line": loss.example.first,
        "second_line": loss.example.second,
        "lost_tokens": explanation.lost_tokens,
        "text": explanation.text,
        "command": command,
    }
    if show_text:
        texts = ("was", "now", "first", "second")
        shown = dataclasses.asdict(explanation)
        example |= {name: shown[name] for name in texts}
    return {
        "cause": loss.cause.value,
        "tokens": round(loss.tokens),
        "pairs": round(loss.pairs),
        "example": example,
    }
