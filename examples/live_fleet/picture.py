"""The outcome as an SVG picture, below the drawing of a request's way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

DRAWING = Path(__file__).with_name("picture.svg")
LEFT, TOP, ROW, FULL = 238, 286, 26, 500  # of the bars; units of the drawing, FULL for 100 %
PLAIN, OURS = "#90a4ae", "#00695c"
TITLE = "Prompt tokens that the engines took from their caches, by routing"


def write_picture(path: Path, rates: Mapping[str, float], caption: str) -> None:
    """Write the picture.

    Args:
        path: the file to write.
        rates: the hit rate behind each router, 0 to 1; the last one is mmroute's.
        caption: the lines below the bars, with line breaks between them.
    """
    lines = [f'  <text x="16" y="256" font-weight="600" fill="#1c262b">{TITLE}</text>']
    for row, (name, rate) in enumerate(rates.items()):
        last = row == len(rates) - 1
        y, weight = TOP + ROW * row, ' font-weight="600"' if last else ""
        text = f'y="{y}" fill="#1c262b"{weight}'
        lines.append(
            f'  <text x="{LEFT - 12}" {text} text-anchor="end">{name}</text>'
            f'<rect x="{LEFT}" y="{y - 15}" width="{FULL * rate:.0f}" height="20" '
            f'fill="{OURS if last else PLAIN}"/>'
            f'<text x="{LEFT + FULL * rate + 8:.0f}" {text}>{rate:.1%}</text>'
        )
    for row, line in enumerate(caption.splitlines()):
        y = TOP + ROW * len(rates) + 4 + 18 * row
        lines.append(f'  <text x="16" y="{y}" fill="#546e7a" font-size="13">{line}</text>')
    drawing = Template(DRAWING.read_text(encoding="utf-8"))
    path.write_text(drawing.substitute(plot="\n".join(lines)), encoding="utf-8")
