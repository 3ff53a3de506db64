"""A first family spec for a model nobody knows yet: the known families, tried one by one.

Every known spec is resolved on the new model's files as if it matched them, and asked for many
sizes. What agrees best with the engine is where a human begins; agreement on sizes proves neither
the tokenizer nor the template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mmroute.engines.profile import find_backend
from mmroute.errors import MmrouteError, Reason, shown
from mmroute.fast_paths import REFERENCE_ONLY
from mmroute.model.files import FieldRef, ModelFiles
from mmroute.model.resolve import resolve_files
from mmroute.model.spec import load_spec, spec_files
from mmroute.normalizer import Normalizer
from mmroute.parity.answers import Answer, Case, Oracle, Undecided
from mmroute.parity.comparison import our_answer

__all__ = ["Candidate", "propose", "size_cases", "spec_text"]

_MATCHED_BY: Final = ("config.json:model_type", "config.json:architectures")
_HEAD: Final = re.compile(r"^family = .*\ntitle = .*\n", re.MULTILINE)
_MATCH: Final = re.compile(r"^\[match\].*\n(?:.+\n)*", re.MULTILINE)
_CHECKED: Final = re.compile(r"^\[checked\].*\n(?:.+\n)*", re.MULTILINE)
_EMBEDDED: Final = re.compile(r"^embedded = .*\n", re.MULTILINE)
_PIPELINES: Final = re.compile(r"^pipelines = .*$", re.MULTILINE)
_UNDECIDED_PIPELINE: Final = (
    'pipelines = { "*" = "file" }  # to be decided for this tokenizer_class'
)
_SIDES: Final = (1, 20, 28, 55, 97, 224, 333, 336, 337, 512, 640, 777, 1024, 1281, 2000)
_TEXT: Final = {"type": "text", "text": "What is this?"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A known family, tried on a new model.

    Attributes:
        family: whose spec it is.
        geometry: its geometry; None if it takes text only.
        text: the spec, matched to the new model.
        equal: requests answered as the oracle answers them.
        decided: requests the oracle has an answer to.
        problem: why the spec does not fit the files; empty if it does.
    """

    family: str
    geometry: str | None
    text: str
    equal: int = 0
    decided: int = 0
    problem: str = ""


def size_cases() -> list[Case]:
    """Requests of one image each, of many sizes, and one of text alone."""
    cases = [Case("text", "text", {"messages": [{"role": "user", "content": [_TEXT]}]})]
    pairs = [(w, h) for i, w in enumerate(_SIDES) for h in (*_SIDES[i % 3 :: 3], w)]
    for width, height in dict.fromkeys(pairs):
        messages = [{"role": "user", "content": [{"type": "image"}, _TEXT]}]
        images = [{"width": width, "height": height}]
        request = {"messages": messages, "images": images}
        cases.append(Case(f"{width}x{height}", "size", request))
    return cases


def propose(
    files: ModelFiles, oracle: Oracle, cases: Sequence[Case], *, backend: str = "vllm"
) -> list[Candidate]:
    """All known families, those first that answer most requests as the oracle does.

    Raises:
        SpecError: a known spec is malformed.
        ModelError: there is no such backend.
    """
    theirs = dict(_answers(oracle, cases))
    candidates = []
    for file in spec_files():
        known = file.read_text(encoding="utf-8")
        family = load_spec(known, file.name).family
        text = spec_text(known, files)
        candidate = _tried(family, text, files, backend, cases, theirs)
        if candidate.problem.startswith(Reason.TOKENIZER_UNVERIFIED):
            # The class is not one the family was checked with. Sizes can be compared all the same.
            text = _PIPELINES.sub(_UNDECIDED_PIPELINE, text)
            candidate = _tried(family, text, files, backend, cases, theirs)
        candidates.append(candidate)
    return sorted(candidates, key=lambda c: (bool(c.problem), -c.equal, c.family))


def spec_text(known: str, files: ModelFiles) -> str:
    """The text of a known spec with the name and the match of another model."""
    found = {place: files.lookup(FieldRef.parse(place))[1] for place in _MATCHED_BY}
    name = str(found[_MATCHED_BY[0]] or "new")
    match = "[match]\n"
    for place, value in found.items():
        values = value if isinstance(value, list) else [value]
        if value is not None:
            match += f'"{place}" = [{", ".join(f"{one!s}".join(chr(34) * 2) for one in values)}]\n'
    text = _HEAD.sub(f'family = "{name}"\ntitle = "{name}"\n', known, count=1)
    text = _MATCH.sub(lambda _: match, text, count=1)
    return _EMBEDDED.sub("", _CHECKED.sub("[checked]  # engine -> versions, once proved\n", text))


def _answers(oracle: Oracle, cases: Sequence[Case]) -> Iterator[tuple[str, Answer]]:
    for case in cases:
        try:
            yield case.id, oracle.answer(case)
        except Undecided:
            continue


def _tried(  # noqa: PLR0913, PLR0917 - one step of `propose`
    family: str,
    text: str,
    files: ModelFiles,
    backend: str,
    cases: Sequence[Case],
    theirs: dict[str, Answer],
) -> Candidate:
    spec = load_spec(text, family)
    geometry = None if spec.geometry is None else spec.geometry.name
    try:
        model = resolve_files(files, spec, find_backend(backend), files.name, REFERENCE_ONLY)
    except MmrouteError as error:
        return Candidate(family, geometry, text, problem=f"{error.reason}: {error}")
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        return Candidate(family, geometry, text, problem=shown(error))
    normalizer = Normalizer(model)
    asked = [case for case in cases if case.id in theirs]
    equal = sum(our_answer(normalizer, case).same(theirs[case.id]) for case in asked)
    return Candidate(family, geometry, text, equal, len(asked))
