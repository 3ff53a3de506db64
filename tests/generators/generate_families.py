"""Write ``docs/families.md`` from the family specs and the list of the engine's architectures.

python tests/generators/generate_families.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mmroute.model.architectures import register
from mmroute.model.spec import known_families
from mmroute.specs.architectures import Architecture, architectures

PAGE: Final = Path(__file__).parents[2] / "docs" / "families.md"

_INTRODUCTION: Final = """# Model families

`mmroute families` lists the families of the installed version, `mmroute families --all` every
multimodal architecture of {engine}. Both read the family specs (`model_specs/`, and those of
installed packages) and `mmroute/engines/vllm/architectures.toml`. This page is written from the
same data by `python tests/generators/generate_families.py`.

*exact*: token IDs and ranges equal the engine's, for the modalities named; items of other
modalities are refused. *text only*: requests without items are answered, items are refused.
*refused*: a model of this architecture is not loaded; the message says why, and what to do.
"""


def page() -> str:
    """The page as Markdown."""
    families = [
        (
            f"`{spec.family}`",
            spec.title,
            ", ".join(spec.media) or "text only",
            "; ".join(f"{name} {', '.join(versions)}" for name, versions in spec.checked.items()),
        )
        for spec in known_families()
    ]
    listed = [_row(one) for one in architectures()]
    remedies = [
        f"* {refusal.why[0].upper()}{refusal.why[1:]}: {refusal.remedy}."
        for refusal in register().refused.values()
    ]
    parts = [
        _INTRODUCTION.format(engine=register().engine),
        "## Families\n",
        *_table(("family", "models", "exact for", "proved equal to"), families),
        f"\n## All {len(listed)} multimodal architectures of {register().engine}\n",
        *_table(("architecture", "state", "family, or why refused"), listed),
        "\n## What to do for a refused model\n",
        *remedies,
    ]
    return "\n".join(parts) + "\n"


def _row(one: Architecture) -> tuple[str, ...]:
    state = f"{one.state}: {', '.join(one.modalities)}" if one.modalities else str(one.state)
    families = ", ".join(f"`{spec.family}`" for spec in one.families)
    return f"`{one.name}`", state, families if one.refusal is None else one.refusal.why


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [
        f"| {' | '.join(heading)} |",
        f"|{' --- |' * len(heading)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
