"""minijinja's values, their texts, and its operators on them.

Source: minijinja 2.24.0 ``value/mod.rs``, ``value/ops.rs``, ``value/object.rs``.
"""

from __future__ import annotations

import operator
import unicodedata
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NoReturn

from jinja2 import TemplateRuntimeError, Undefined
from jinja2.runtime import LoopContext
from jinja2.utils import Namespace

_LOOP: Final = frozenset({
    "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem",
    "revindex", "revindex0",
})  # fmt: skip
_LARGEST: Final = 2**63
# Integers below this, and powers of ten up to this one, are exact as floats.
_EXACT: Final = 2**53
_EXACT_POWER: Final = 22
# Numbers that Rust's ``Debug`` writes without an exponent.
_LEAST_PLAIN: Final = 1e-4
_LEAST_EXPONENT: Final = 1e16
_ESCAPES: Final = {"\0": "\\0", "\t": "\\t", "\n": "\\n", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_GRAPHEME_EXTENDERS: Final = frozenset("\u200c\uff9e\uff9f")
_UNDEFINED: Final = Undefined()
_NO_NUMBERS: Final = (str, list, dict, type(None), Undefined)


class UnknownResultError(BaseException):
    """minijinja's result for a value is not known.

    It is not an `Exception`, because the code that renders templates catches those.
    """


class Iterable(list[Any]):
    """A slice, or a view of a mapping: a list that is no sequence to the test of that name."""


def unknown(what: str) -> NoReturn:
    """Raise the error that minijinja's result is not known."""
    raise UnknownResultError(what)


def failed(why: str) -> NoReturn:
    """Raise the error with which minijinja fails."""
    raise TemplateRuntimeError(why)


def is_number(value: object) -> bool:
    """Whether a value is a number. A boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def text(value: Any) -> str:
    """The text of a value (Rust's ``Display``)."""
    if isinstance(value, str):
        return value
    if isinstance(value, Undefined):
        return ""
    if isinstance(value, float):
        plain = format(Decimal(sure_digits(value)), "f")
        return plain if "." in plain else f"{plain}.0"
    return _inner(value)


def sure_digits(value: float) -> str:
    """The digits of a number that serde_json has read as Python does.

    It multiplies or divides by a power of ten, which is not always rounded right.
    """
    digits = repr(value)
    _, significand, exponent = Decimal(digits).normalize().as_tuple()
    large = sum(d * 10**i for i, d in enumerate(reversed(significand))) >= _EXACT
    if large or not isinstance(exponent, int) or abs(exponent) > _EXACT_POWER:
        unknown("a number with many digits, or a large exponent, in a text")
    return digits


def _inner(value: Any) -> str:
    """The text of a value in a list or mapping (Rust's ``Debug``)."""
    if value is None or isinstance(value, bool | int):
        return str(value)
    if isinstance(value, str):
        return f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, float):
        if value and not _LEAST_PLAIN <= abs(value) < _LEAST_EXPONENT:
            unknown("a list or mapping with a very large or small number in a text")
        return text(value)
    if isinstance(value, Undefined):
        return "undefined"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_inner(k)}: {_inner(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inner, value))}]"
    unknown(f"{type(value).__name__} in a text")


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isascii():
        return char if char.isprintable() else f"\\u{{{ord(char):x}}}"
    # Which of the others are escaped depends on the version of Unicode.
    if unicodedata.category(char)[0] not in "LNPS" or char in _GRAPHEME_EXTENDERS:
        unknown(f"U+{ord(char):04X} in a list or mapping in a text")
    return char


def attribute(value: Any, name: str) -> Any:
    """``value.name``; for a mapping its item, and never a method."""
    if isinstance(value, dict):
        return value.get(name, _UNDEFINED)
    if isinstance(value, Namespace) or (isinstance(value, LoopContext) and name in _LOOP):
        return getattr(value, name, _UNDEFINED)
    if isinstance(value, Undefined):
        failed(f"undefined value has no attribute {name}")
    if value is None or isinstance(value, str | bool | int | float | list):
        return _UNDEFINED
    unknown(f"attribute {name} of {type(value).__name__}")


def item(value: Any, key: Any) -> Any:
    """``value[key]``."""
    if isinstance(value, dict):
        return value.get(key, _UNDEFINED) if isinstance(key, str) else _odd_key(value, key)
    if isinstance(value, list | str):
        if type(key) is not int:
            return (
                _UNDEFINED
                if isinstance(key, str | Undefined) or key is None
                else _odd_key(value, key)
            )
        at = key + len(value) if key < 0 else key
        return value[at] if 0 <= at < len(value) else _UNDEFINED
    if isinstance(key, str):
        return attribute(value, key)
    if isinstance(value, Undefined):
        failed("undefined value has no items")
    return _UNDEFINED


def _odd_key(value: object, key: object) -> NoReturn:
    unknown(f"an item of {type(value).__name__} by {type(key).__name__}")


def slice_of(value: Any, start: Any, stop: Any, step: Any) -> Any:
    """``value[start:stop:step]``."""
    if value is None or isinstance(value, Undefined):
        return []
    if not all(type(bound) is int or bound is None for bound in (start, stop, step)):
        unknown("a slice with bounds that are no integers")
    if step is not None and step < 1 and (not value or (start, stop, step) != (None, None, -1)):
        unknown("a slice backwards, but of the whole")
    if isinstance(value, str):
        return value[start:stop:step]
    if isinstance(value, list):
        return Iterable(value[start:stop:step])
    failed(f"value of type {type(value).__name__} cannot be sliced")


def items_of(value: Any) -> list[Any]:
    """The items that a filter for lists iterates over."""
    if isinstance(value, list):
        return value
    if isinstance(value, str | dict):
        return list(value)
    if value is None or isinstance(value, Undefined):
        return []
    if isinstance(value, bool | int | float):
        failed(f"{type(value).__name__} is not iterable")
    unknown(f"a loop over {type(value).__name__}")


def looped_over(value: Any) -> list[Any]:
    """The items that a loop of a template iterates over. A text has no known length there."""
    if isinstance(value, str) and value:
        unknown("a loop over a text")
    return items_of(value)


def contains(value: Any, container: Any) -> bool:
    """``value in container``."""
    if isinstance(container, Undefined):
        return False
    if isinstance(container, str):
        return text(value) in container
    if isinstance(container, list):
        return any(value == each for each in container)
    if isinstance(container, dict):
        return value in container if isinstance(value, str) else _odd_key(container, value)
    if container is None or isinstance(container, bool | int | float):
        failed("cannot perform a containment check on this value")
    unknown(f"a search in {type(container).__name__}")


def concatenated(*values: Any) -> str:
    """``a ~ b``."""
    return "".join(map(text, values))


def added(left: Any, right: Any) -> Any:
    """``left + right``."""
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        return Iterable([*left, *right])
    return _of_integers(operator.add, left, right)


def multiplied(left: Any, right: Any) -> Any:
    """``left * right``."""
    texts = [value for value in (left, right) if isinstance(value, str)]
    counts = [value for value in (left, right) if type(value) is int]
    if len(texts) == len(counts) == 1 and counts[0] >= 0:
        return texts[0] * counts[0]
    return _of_integers(operator.mul, left, right)


def subtracted(left: Any, right: Any) -> Any:
    """``left - right``."""
    return _of_integers(operator.sub, left, right)


def modulo(left: Any, right: Any) -> Any:
    """``left % right``; the remainder is never negative."""
    return _of_integers(operator.mod, left, right, positive=True)


def divided(left: Any, right: Any) -> Any:
    """``left // right``."""
    return _of_integers(operator.floordiv, left, right, positive=True)


def negated(value: Any) -> Any:
    """``-value``."""
    return _of_integers(operator.sub, 0, value)


def _of_integers(
    operation: Callable[[int, int], int], left: Any, right: Any, *, positive: bool = False
) -> int:
    if type(left) is int and type(right) is int:
        if positive and right <= 0:
            unknown("a division by what is not positive")
        result = operation(left, right)
        if abs(result) < _LARGEST:
            return result
    elif any(isinstance(value, _NO_NUMBERS) for value in (left, right)):
        failed("tried to use an operator on unsupported types")
    unknown("arithmetic with other numbers than small integers")


def ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """``left < right`` and the like, of two numbers or two texts."""

    def compared(left: Any, right: Any) -> bool:
        if (is_number(left) and is_number(right)) or (
            isinstance(left, str) and isinstance(right, str)
        ):
            return compare(left, right)
        unknown(f"whether {type(left).__name__} is less than {type(right).__name__}")

    return compared


def sort_key(value: Any) -> Any:
    """The key by which filters sort if case does not count."""
    if isinstance(value, str) and value.isascii():
        return value.lower()
    if is_number(value):
        return value
    unknown("the order of values that are neither numbers nor ASCII texts")


def at_path(value: Any, path: Any) -> Any:
    """The attribute that filters take by a name such as ``function.name``."""
    if not isinstance(path, str):
        unknown("an attribute that is not named by a text")
    for name in path.split("."):
        value = item(value, int(name)) if name.isdecimal() else attribute(value, name)
    return value
