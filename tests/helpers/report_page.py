"""Reports as HTML, which must need nothing but themselves."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path


class ReportPage(HTMLParser):
    """A page that loads nothing.

    Attributes:
        tags: how many there are of each.
        classes: how many tags are of each class.
    """

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.tags[tag] += 1
        self.classes.update((given.get("class") or "").split())
        assert tag not in {"script", "link", "img"}
        assert not {"src", "href"} & given.keys()
