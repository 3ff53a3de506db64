"""The words of a family spec: what its layout writes around the features of items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from string import Formatter
from types import NoneType
from typing import Any, Final, get_args

from mmroute.errors import ModelError, Reason
from mmroute.families.lookup import Lookup
from mmroute.families.media import MediaSpec
from mmroute.geometry.layout import Around, Words
from mmroute.geometry.registry import LAYOUTS
from mmroute.model.values import Values
from mmroute.tokenizers import Tokenizer

_FILL: Final = "fill"


def resolve_words(
    spec: MediaSpec, tokenizer: Tokenizer, tokens: Mapping[str, int], values: Values, modality: str
) -> dict[str, Any]:
    """The fields of a layout."""
    types = {name: _plain(kind) for name, kind in LAYOUTS.types(spec.layout.name).items()}
    given = spec.layout.values
    words = {name: _word(name, lookup, types.get(name), values) for name, lookup in given.items()}
    words.setdefault(_FILL, f"{{{modality}}}")
    resolver = _Resolver(words, tokenizer, tokens, values)
    fields = {name: resolver.field(name, kind) for name, kind in types.items() if name in words}
    _check_fill({**fields}, values)
    return fields


def _check_fill(fields: dict[str, Any], values: Values) -> None:
    """Refuse words with the token of features: the engine looks for features wherever it stands."""
    fill = fields.pop(_FILL, None)
    for name, found in fields.items():
        ids = (*found.before, *found.after) if isinstance(found, Around) else found
        if fill in ids if isinstance(ids, tuple) else type(ids) is int and ids == fill:
            raise ModelError(
                Reason.CONTRADICTORY_CONFIG,
                f"{values.files.name}: {name}, which stands beside the features of an item, has "
                f"their token {fill}.",
            )


def _plain(kind: Any) -> Any:
    """The type of a field, without the None of one that may be left out."""
    return get_args(kind)[0] if NoneType in get_args(kind) else kind


def _word(name: str, lookup: Lookup, kind: Any, values: Values) -> Any:
    """A word of the spec, or one that a file gives: a token's ID, a switch, or no template.

    A word that is no field of the layout (`kind` is None) may be a text or an ID.
    """
    if not lookup.sources:
        return lookup.default
    word = values.required(name, lookup)
    if kind is int:
        if type(word) is not int or word <= 0:
            raise values.invalid(name, word, "a token ID")
        return word
    if kind is bool:
        if type(word) is not bool:
            raise values.invalid(name, word, "true or false")
        return word
    if kind is None and type(word) is int and word > 0:
        return word
    if not isinstance(word, str):
        raise values.invalid(name, word, "a text")
    return word if lookup.names else _escaped(word)


def _escaped(text: str) -> str:
    """A text as a template that is filled in to just this text."""
    return text.replace("{", "{{").replace("}", "}}")


@dataclass(frozen=True, slots=True)
class _Resolver:
    """Works out the words of one layout."""

    words: Mapping[str, Any]
    tokenizer: Tokenizer
    tokens: Mapping[str, int]
    values: Values

    def field(self, name: str, kind: Any) -> Any:
        """A field of the layout, by its type."""
        word = self.words[name]
        if not isinstance(word, str):  # a switch, or a token that a file gives
            return word
        if kind is str:
            return self._template(word)
        if kind is Around:
            before, _, after = word.partition(f"{{{_FILL}}}")
            return Around(self._ids(before), self._ids(after))
        ids = self._ids(word)
        if kind is int and len(ids) != 1:
            raise self.values.invalid(name, list(ids), "one token")
        return ids[0] if kind is int else ids

    def _ids(self, word: str) -> Words:
        """The token IDs of a word: its tokens, and the texts between them."""
        ids: list[int] = []
        for text, name in _parts(word):
            if text:
                ids += self.tokenizer.encode(text, add_special_tokens=False).tolist()
            of_name = self.tokens.get(name, self.words.get(name))
            ids += [of_name] if isinstance(of_name, int) else self._ids(of_name or "")
        return tuple(ids)

    def _template(self, word: str) -> str:
        """A word with the other words in it, and the fields of an item left open."""
        template = ""
        for text, name, form, _ in Formatter().parse(word):
            template += _escaped(text)
            if name is not None and name in self.words:
                template += self._template(self.words[name])
            elif name is not None:
                template += f"{{{name}:{form}}}" if form else f"{{{name}}}"
        return template


def _parts(word: str) -> Iterator[tuple[str, str]]:
    """Texts, each with the name in braces behind it; empty where there is none."""
    return ((text, name or "") for text, name, _, _ in Formatter().parse(word))
