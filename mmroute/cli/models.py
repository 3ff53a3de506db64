"""``mmroute resolve`` and ``mmroute families``: show what was resolved, and what is supported."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from mmroute.cli.arguments import Commands, add_command
from mmroute.cli.engine_options import load_normalizer, model_arguments
from mmroute.cli.output import print_table, print_text
from mmroute.engines.vllm.architectures import Refusal, register
from mmroute.engines.vllm.serve_settings import OPTIONS
from mmroute.engines.vllm_rust.families import SERVED
from mmroute.engines.vllm_rust.profile import VLLM_RUST
from mmroute.families.matching import known_families
from mmroute.families.sources import OWN_PACKAGE
from mmroute.families.spec import FamilySpec
from mmroute.model.resolved import Origin, ResolvedModel
from mmroute.model_directory import FieldRef
from mmroute.reuse.fast_paths import FastPaths

_DECLARED: Final = FieldRef.parse("config.json:architectures")


class State(StrEnum):
    """The support for the models of an architecture."""

    EXACT = "exact"
    TEXT_ONLY = "text only"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture."""

    name: str  # the name in a model's `config.json`
    families: tuple[FamilySpec, ...]  # the family specs for its models; none if it is refused
    refusal: Refusal | None = None  # the reason why it is refused; None if it is not

    @property
    def state(self) -> State:
        """Exact if one of its families takes items of any modality."""
        if not self.families:
            return State.REFUSED
        return State.EXACT if any(spec.media for spec in self.families) else State.TEXT_ONLY

    @property
    def modalities(self) -> list[str]:
        """The modalities of its families beside text."""
        return sorted({str(modality) for spec in self.families for modality in spec.media})

    @property
    def checked(self) -> str:
        """The engine versions on which its families were checked."""
        versions_checked = {
            f"{name} {version}"
            for spec in self.families
            for name, versions in spec.checked.items()
            for version in versions
        }
        return ", ".join(sorted(versions_checked))


def architectures() -> Iterator[Architecture]:
    """All multimodal architectures of vLLM, in alphabetical order."""
    listed, specs = register(), known_families()
    for name in listed.names:
        families = tuple(
            spec
            for spec in specs
            if name in spec.match.get(_DECLARED, ()) or spec.family == listed.covered_by.get(name)
        )
        yield Architecture(name, families, None if families else listed.refusal([name]))


_ENCODERS = ("tokenizers", "mistral-common")  # token IDs depend on their versions, too


def add_resolve(commands: Commands) -> None:
    """Add the command."""
    resolve = add_command(
        commands,
        "resolve",
        "what was resolved for a model, and from which file and field",
        _resolve,
    )
    model_arguments(resolve)


def add_families(commands: Commands) -> None:
    """Add the command."""
    families = add_command(
        commands,
        "families",
        "which families are supported, and on what each was checked",
        _families,
    )
    families.add_argument(
        "--all",
        action="store_true",
        help="every multimodal architecture of vLLM, with what is answered for its models",
    )


def _resolve(arguments: argparse.Namespace) -> int:
    normalizer = load_normalizer(arguments, fast_paths=FastPaths(at_once=True))
    model, encoder = normalizer.model, normalizer.stats().encoder
    head = {
        "model": model.name,
        "model_id": model.model_id,
        "commit": model.commit,
        "family": model.family.family,
        "backend": model.engine.release.label,
        "frontend": model.engine.release.frontend,
        "encoder": None if encoder is None else f"{encoder.engine} {encoder.why}",
        "libraries": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _ENCODERS),
    }
    origins = _that_count(model)
    values = [{"name": o.name, "value": o.value, "source": o.source} for o in origins]
    if arguments.json:
        print(json.dumps(head | {"values": values}, ensure_ascii=False, default=str))
        return 0
    print_table([(name, value) for name, value in head.items() if value is not None])
    print()
    rows = [("VALUE", "IS", "FROM")]
    for origin in origins:
        shown = (
            ""
            if origin.value is None
            else json.dumps(origin.value, ensure_ascii=False, default=str)
        )
        limit = 48
        shown = shown if len(shown) <= limit else f"{shown[: limit - 3]}..."
        rows.append((origin.name, shown, origin.source))
    print_table(rows)
    return 0


def _that_count(model: ResolvedModel) -> list[Origin]:
    """Each value once, as it counts: one that an option sets comes from this option."""
    found = {origin.name: origin for origin in model.origins}
    for field in dataclasses.fields(cast("Any", model.settings)):
        value, option = getattr(model.settings, field.name), OPTIONS.get(field.name)
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if option is not None and value != default:
            counts = found.get(field.name)
            found[field.name] = Origin(field.name, counts.value if counts else value, option)
    return list(found.values())


def _families(arguments: argparse.Namespace) -> int:
    if arguments.all:
        return _architectures(as_json=arguments.json)
    specs = known_families()
    if arguments.json:
        listed = [
            {
                "family": spec.family,
                "title": spec.title,
                "match": {str(field): list(values) for field, values in spec.match.items()},
                "geometries": {
                    str(name): {"grid": media.grid.name, "layout": media.layout.name}
                    for name, media in spec.media.items()
                },
                "checked": {engine: list(v) for engine, v in spec.checked.items()},
                "rust_frontend_images": spec.family in SERVED,
                "package": spec.package,
            }
            for spec in specs
        ]
        print(json.dumps(listed, ensure_ascii=False))
        return 0
    rows = [("FAMILY", "EXACT FOR TEXT AND", "MODELS", "CHECKED ON")]
    for spec in specs:
        checked = ", ".join(f"{engine} {' '.join(v)}" for engine, v in spec.checked.items())
        items = ", ".join(spec.media) or "-"
        rows.append((_named(spec), items, spec.title, checked))
    print_table(rows)
    images = ", ".join(spec.family for spec in specs if spec.family in SERVED)
    print()
    rust = VLLM_RUST.release.label
    print_text(f"Behind {rust}: texts of these families, and images of {images}.")
    return 0


def _architectures(*, as_json: bool) -> int:
    listed = list(architectures())
    if as_json:
        print(json.dumps([_as_json(one) for one in listed], ensure_ascii=False))
        return 0
    rows = [("ARCHITECTURE", "STATE", "FAMILY", "CHECKED ON, OR WHY REFUSED")]
    for one in listed:
        families = ", ".join(map(_named, one.families))
        why = one.checked if one.refusal is None else one.refusal.why
        state = " ".join([one.state, *one.modalities])
        rows.append((one.name, state, families or "-", why))
    print_table(rows)
    for refusal in register().refused.values():
        print()
        print_text(f"If {refusal.why}: {refusal.remedy}.")
    return 0


def _named(spec: FamilySpec) -> str:
    """A family, with the package that brings it."""
    return spec.family if spec.package == OWN_PACKAGE else f"{spec.family} ({spec.package})"


def _as_json(one: Architecture) -> dict[str, Any]:
    return {
        "architecture": one.name,
        "state": one.state,
        "modalities": one.modalities,
        "families": [{"family": s.family, "package": s.package} for s in one.families],
        "checked": one.checked,
        "why": one.refusal and one.refusal.why,
        "remedy": one.refusal and one.refusal.remedy,
    }
