"""Options of ``mmroute serve`` from the environment or from a file."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mmroute.errors import did_you_mean, nearest

_PREFIX: Final = "MMROUTE_"
_MODELS: Final = "models"
_OTHERS: Final = ("MODELS",)  # variables of the project's tests and benchmarks
_NOT_THERE: Final = frozenset({"help", "json", "config", "check_config"})
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
    actions, dests = _options(parser), _dests(parser)
    path = arguments.config or environment.get(f"{_PREFIX}CONFIG")
    values = _from_file(Path(path), actions) if path else {}
    variables = _variables(environment)
    _check_known(variables, [*dests, "CONFIG"])
    values |= {dests[short]: variables[short] for short in dests.keys() & variables.keys()}
    more = []
    for name, value in values.items():
        options = actions[name].option_strings
        if not any(text.partition("=")[0] in options for text in words):
            more += _arguments(actions[name], value)
    models = _several(values[_MODELS]) if _MODELS in values and not arguments.models else []
    return parser.parse_args([*models, *words, *more])


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {a.dest: a for a in parser._actions if a.dest not in _NOT_THERE}  # noqa: SLF001 - there is no other list of them


def _dests(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The option of each variable, which is named without its prefix."""
    return {"MODEL" if name == _MODELS else name.upper(): name for name in _options(parser)}


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of mmroute, without their prefix.

    Kubernetes sets MMROUTE_PORT to a URL if a service is named mmroute, and more of the kind.
    """
    return {
        name.removeprefix(_PREFIX): value
        for name, value in environment.items()
        if name.startswith(_PREFIX)
        and not name.startswith((f"{_PREFIX}SERVICE_", f"{_PREFIX}PORT_"))
        and not (name.endswith("PORT") and value.startswith("tcp://"))
    }


def _check_known(variables: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a variable that is none of an option, and looks like one."""
    names = [f"{_PREFIX}{short}" for short in known]
    for short in sorted(set(variables).difference(known, _OTHERS)):
        name = f"{_PREFIX}{short}"
        near = nearest(name, names, cutoff=0.9)
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
    values = {}
    for key, value in entries.items():
        name = str(key).replace("-", "_")
        if name not in actions:
            known = [action.replace("_", "-") for action in actions]
            raise ValueError(f"{path}: there is no option {key}{did_you_mean(str(key), known)}")
        values[name] = value
    return values


def _arguments(action: argparse.Action, value: object) -> list[str]:
    """The value of an option as arguments on the command line."""
    if not action.option_strings or value is None:
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
    return [str(one) for one in value] if isinstance(value, list) else str(value).split()
