"""The outcome as SVG pictures; one stands below the drawing of a request's way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

DRAWING = Path(__file__).with_name("picture.svg")
LEFT, TOP, ROW, FULL = 238, 286, 26, 500  # of the bars; units of the drawing, FULL for 100 %
PLAIN, OURS = "#90a4ae", "#00695c"
CREDITS = {"right": OURS, "wrong": "#c62828", "missed": "#cfd8dc"}
TITLE = "Prompt tokens that workers took from their caches, by routing"


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


def write_bars(path: Path, told: Mapping[str, Sequence[float]], caption: str) -> None:
    """Write one bar for each router: the tokens credited rightly, wrongly, and not at all.

    Args:
        path: the file to write.
        told: the three shares of all prompt tokens, by router.
        caption: the line below the bars.
    """
    lines = []
    for row, (name, parts) in enumerate(told.items()):
        y, x = 62 + ROW * row, float(LEFT)
        lines.append(f'  <text x="{LEFT - 12}" y="{y}" text-anchor="end">{name}</text>')
        for share, colour in zip(parts, CREDITS.values(), strict=True):
            width = FULL * share
            bar = f'y="{y - 15}" width="{width:.0f}" height="20" fill="{colour}"'
            lines.append(f'  <rect x="{x:.0f}" {bar}/>')
            x += width
    for column, (name, colour) in enumerate(CREDITS.items()):
        x = LEFT + 110 * column
        lines.append(f'  <rect x="{x}" y="20" width="14" height="14" fill="{colour}"/>')
        lines.append(f'  <text x="{x + 20}" y="32">{name}</text>')
    height = 62 + ROW * len(told) + 24
    lines.append(f'  <text x="16" y="{height - 20}" fill="#546e7a" font-size="13">{caption}</text>')
    font = "font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\""
    label = "Tokens that each router credits rightly, wrongly and not at all"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 {height}" {font} '
        f'font-size="15" fill="#1c262b" role="img" aria-label="{label}">\n'
        f'  <rect width="920" height="{height}" rx="10" fill="#ffffff"/>\n'
    )
    path.write_text(head + "\n".join(lines) + "\n</svg>\n", encoding="utf-8")
