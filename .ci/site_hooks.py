"""Hooks of the site's generator.

The pages link to files of the repository beside `docs/`, which a forge shows and the site does not
have. Such a link becomes the path of the file.
"""

from __future__ import annotations

import re
from typing import Any, Final

_OUTSIDE: Final = re.compile(r"\[([^\]]*)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called for each page before it is rendered."""
    return _OUTSIDE.sub(lambda link: f"`{link[2]}`", markdown)
