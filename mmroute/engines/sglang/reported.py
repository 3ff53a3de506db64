"""Asks a running SGLang for its options, which it reports with their resolved values.

Source: SGLang 0.5.23 ``srt/entrypoints/http_server.py`` (``/server_info``), ``srt/utils/common.py``
(`build_server_info`). It reports no variables, and not the version of transformers.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mmroute.engine import AdoptedLine
from mmroute.engines.sglang.options import split_command
from mmroute.engines.sglang.page_size import ANY_SIZE, BACKENDS, has_rule
from mmroute.net.transport import Transport


def adopted_line(
    transport: Transport, given: str, names: Collection[str], deciding: Collection[str]
) -> AdoptedLine:
    """See `EngineSettings.adopted`, for the options of these names."""
    info = transport.request("GET", "/server_info").body
    words = list(_words(info, names)) if isinstance(info, Mapping) else []
    environment, rest = split_command(given)
    while rest and not rest[0].startswith("-"):  # the program, and a model beside it
        rest.pop(0)
    variables = [f"{name}={value}" for name, value in environment.items()]
    line = shlex.join([*variables, "sglang", "serve", *words, *rest])
    return AdoptedLine(shlex.join(words), line, sorted(set(deciding) - environment.keys()))


def _words(info: Mapping[str, Any], names: Collection[str]) -> Iterator[str]:
    for name in sorted(names):
        value = info.get(name)
        if value in (None, False, "", [], {}):
            continue
        if name in BACKENDS and not has_rule(value):
            value = ANY_SIZE  # the size that is reported is final
        yield f"--{name.replace('_', '-')}"
        if isinstance(value, list):
            yield from map(_text, value)
        elif value is not True:
            yield _text(value)


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)
