"""The outcome as SVG pictures; one stands below the drawing of a request's way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

DRAWING = Path(__file__).with_name("picture.svg")
LEFT, TOP, ROW, FULL = 238, 286, 26, 500  # of the bars; units of the drawing, FULL for 100 %
PAIR, SHORT = 36, 350  # of bars in pairs
LIGHT = 'fill="#546e7a" font-weight="400"'
PLAIN, OURS = "#90a4ae", "#00695c"
CREDITS = {
    "right: credited and cached": OURS,
    "wrong: credited, not cached": "#c62828",
    "missed: cached, not credited": "#b0bec5",
}
TITLE = "Prompt tokens that each of the two workers had to compute: shorter is better"


def write_picture(
    path: Path, told: Mapping[str, tuple[float, Sequence[float]]], caption: str
) -> None:
    """Write the picture.

    Args:
        path: the file to write.
        told: behind each router the hit rate, 0 to 1, and the tokens that each engine computed; the
            last one is mmroute's.
        caption: the lines below the bars, with line breaks between them.
    """
    lines = [f'  <text x="16" y="256" font-weight="600" fill="#1c262b">{TITLE}</text>']
    most = max(max(computed) for _, computed in told.values())
    for row, (name, (rate, computed)) in enumerate(told.items()):
        last = row == len(told) - 1
        y, weight = TOP + PAIR * row, ' font-weight="600"' if last else ""
        text = f'y="{y}" fill="#1c262b"{weight}'
        lines.append(f'  <text x="{LEFT - 12}" {text} text-anchor="end">{name}</text>')
        for number, tokens in enumerate(computed):
            at = f'x="{LEFT}" y="{y - 18 + 13 * number}"'
            size = f'width="{SHORT * tokens / most:.0f}" height="11"'
            lines.append(f'  <rect {at} {size} fill="{OURS if last else PLAIN}"/>')
        end = LEFT + SHORT * max(computed) / most + 8
        lines.append(
            f'  <text x="{end:.0f}" {text}>{max(computed) / 1000:.0f},000 <tspan {LIGHT}>'
            f"and {min(computed) / 1000:.0f},000;</tspan> <tspan>{rate:.1%}</tspan> "
            f"<tspan {LIGHT}>from caches</tspan>"
            "</text>"
        )
    for row, line in enumerate(caption.splitlines()):
        y = TOP + PAIR * len(told) + 6 + 18 * row
        lines.append(f'  <text x="16" y="{y}" fill="#546e7a" font-size="13">{line}</text>')
    drawing = Template(DRAWING.read_text(encoding="utf-8"))
    height = TOP + PAIR * len(told) + 18 * (1 + caption.count("\n"))
    path.write_text(drawing.substitute(plot="\n".join(lines), height=height), encoding="utf-8")


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
        x = 16 + 260 * column
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
