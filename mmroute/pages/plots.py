"""Plots as inline SVG, in the colours of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

_WIDTH: Final = 480  # units; text of 14 is legible where the page is 400 pixels wide
_LINES_HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 26, 12, 44
_BAR: Final = 30
_LABELS: Final = 152
_VALUES: Final = 110
_TICKS: Final = 4


def bars(title: str, rows: Sequence[tuple[str, float, str]]) -> Markup:
    """Horizontal bars, one below the other, of which the longest fills the plot.

    Args:
        title: the title for screen readers.
        rows: the label before each bar, the bar's length, and the text after it.
    """
    longest = max((value for _, value, _ in rows), default=0) or 1
    room = _WIDTH - _LABELS - _VALUES
    parts = []
    for number, (label, value, text) in enumerate(rows):
        top, length = number * _BAR, room * value / longest
        parts.append(
            Markup(
                '<text x="{}" y="{}" text-anchor="end">{}</text>'
                '<rect class="bar" x="{}" y="{}" width="{:.1f}" height="{}"/>'
                '<text x="{:.1f}" y="{}">{}</text>'
            ).format(
                _LABELS - 8, top + 20, label,
                _LABELS, top + 5, length, _BAR - 10,
                _LABELS + length + 6, top + 20, text,
            )
        )  # fmt: skip
    return _svg(title, _BAR * len(rows), parts)


def lines(
    title: str,
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    x_ticks: Sequence[tuple[float, str]],
    x_label: str,
    y_label: str,
) -> Markup:
    """Lines over one axis; y is shown as a percentage.

    Args:
        title: the title for screen readers.
        series: at most three lines: the label of each in the legend, and its points, with x and y
            from 0 to 1.
        x_ticks: the positions of ticks, from 0 to 1, with their labels.
        x_label: the label of the x axis.
        y_label: the label of the y axis.
    """
    width, height = _WIDTH - _LEFT - _RIGHT, _LINES_HEIGHT - _TOP - _BOTTOM
    base = _TOP + height
    parts = []
    for tick in range(_TICKS + 1):
        y = base - height * tick / _TICKS
        parts.append(
            Markup(
                '<path class="grid" d="M{} {:.1f}H{}"/>'
                '<text x="{}" y="{:.1f}" text-anchor="end">{}%</text>'
            ).format(_LEFT, y, _WIDTH - _RIGHT, _LEFT - 6, y + 5, 100 * tick // _TICKS)
        )
    for at, label in x_ticks:
        parts.append(
            Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                _LEFT + at * width, base + 19, label
            )
        )
    for number, (_, points) in enumerate(series, 1):
        path = " ".join(f"{_LEFT + x * width:.1f},{base - y * height:.1f}" for x, y in points)
        parts.append(Markup('<polyline class="line s{}" points="{}"/>').format(number, path))
    parts.append(
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            _LEFT + width / 2, _LINES_HEIGHT - 6, x_label
        )
    )
    legend = [
        Markup('<span class="named"><span class="key s{}"></span>{}</span> ').format(number, label)
        for number, (label, _) in enumerate(series, 1)
    ]
    caption = Markup("<figcaption>{}: {}</figcaption>").format(y_label, Markup("").join(legend))
    return _svg(title, _LINES_HEIGHT, parts) + caption


def _svg(title: str, height: int, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, height, title, Markup("").join(parts)
    )
