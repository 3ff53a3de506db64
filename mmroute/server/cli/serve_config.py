"""Options of ``mmroute serve`` from the environment or from a file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mmroute.errors import did_you_mean, nearest

_MODELS: Final = "models"
_NOT_THERE: Final = frozenset({"help", "json", "config", "check_config"})
_OTHERS: Final = ("MMROUTE_MODELS",)  # of the project's tests and benchmarks
_OF_KUBERNETES: Final = ("MMROUTE_SERVICE_", "MMROUTE_PORT_")
_TRUE, _FALSE = frozenset({"1", "true", "yes"}), frozenset({"", "0", "false", "no"})


def configured(
    parser: argparse.ArgumentParser, words: Sequence[str], environment: Mapping[str, str]
) -> argparse.Namespace:
    """The arguments of a command line, completed from the environment and the file.

    The command line takes precedence over the environment, and the environment over the file.
    ``--max-body-bytes`` is ``MMROUTE_MAX_BODY_BYTES`` in the environment and ``max-body-bytes`` in
    the file. The variable of a repeatable option has one value on each line. The models are
    ``MMROUTE_MODEL`` and ``models``.

    Raises:
        ValueError: a variable resembles that of an option, or the file has an unknown option.
    """
    arguments = parser.parse_args(words)
    actions = {a.dest: a for a in parser._actions if a.dest not in _NOT_THERE}  # noqa: SLF001 - there is no other list of them
    path = arguments.config or environment.get("MMROUTE_CONFIG")
    values = _from_file(Path(path), actions) if path else {}
    variables = {f"MMROUTE_{'MODEL' if n == _MODELS else n.upper()}": n for n in actions}
    _check_known(environment, [*variables, "MMROUTE_CONFIG"])
    for variable, name in variables.items():
        value = environment.get(variable)
        # Kubernetes sets MMROUTE_PORT to a URL if a service is named mmroute.
        if value is not None and not (name == "port" and value.startswith("tcp://")):
            values[name] = value
    models = _several(values.pop(_MODELS, ()))
    given = {word.partition("=")[0] for word in words}
    more = [
        word
        for name, value in values.items()
        if given.isdisjoint(actions[name].option_strings)
        for word in _arguments(actions[name], value)
    ]
    return parser.parse_args([*([] if arguments.models else models), *words, *more])


def _check_known(environment: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse a variable that is none of an option, and looks like one."""
    for name in sorted(environment.keys() - {*known, *_OTHERS}):
        ours = name.startswith("MMROUTE_") and not name.startswith(_OF_KUBERNETES)
        near = nearest(name, known, cutoff=0.9) if ours else None
        if near is not None:
            raise ValueError(f"there is no variable {name}. Did you mean {near}?")


def _from_file(path: Path, actions: Mapping[str, argparse.Action]) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]  # needed for a file only

    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(entries, dict):
        raise ValueError(f"{path}: must be a mapping of options")
    values = {str(key).replace("-", "_"): value for key, value in entries.items()}
    for name in values.keys() - actions:
        known = [action.replace("_", "-") for action in actions]
        option = name.replace("_", "-")
        raise ValueError(f"{path}: there is no option {option}{did_you_mean(option, known)}")
    return values


def _arguments(action: argparse.Action, value: object) -> list[str]:
    """The value of an option as arguments on the command line."""
    if value is None:
        return []
    option = action.option_strings[-1]
    if action.nargs == 0:
        text = str(value).lower()
        if text not in _TRUE | _FALSE:
            raise ValueError(f"{option}: must be true or false, found {value}")
        return [option] * (text in _TRUE)
    if action.nargs == "+":
        return [option, *_several(value)]
    if isinstance(action.default, list):
        lines = value if isinstance(value, list) else str(value).splitlines()
        return [f"{option}={line}" for line in lines]
    return [f"{option}={value}"]


def _several(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list | tuple) else str(value).split()
