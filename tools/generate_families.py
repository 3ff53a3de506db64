"""Write ``docs/families.md`` and ``docs/text-types.md`` from the family specs and other data.

python tools/generate_families.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mmroute.cli.models import Architecture, architectures
from mmroute.engines.vllm.architectures import register
from mmroute.families.matching import known_families
from mmroute.families.spec import FamilySpec
from mmroute.model_directory import FieldRef
from mmroute.tokenizers.engine_classes import FILE, MODEL_TYPES, engine_class
from mmroute.tokenizers.pipelines import PIPELINES

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "families.md"
TEXT_PAGE: Final = DOCS / "text-types.md"

_INTRODUCTION: Final = """# Model families

`mmroute families` lists the families of the installed version, and `mmroute families --all` every
multimodal architecture of {engine}. This page is written from the same data, the family specs
(`model_specs/`), by `python tools/generate_families.py`.

- *exact*: token IDs and ranges equal the engine's, for the named modalities. Items of other
  modalities are refused.
- *text only*: requests without items are answered. Items are refused.
- *refused*: a model of this architecture is not loaded. The message says why, and what to do.
"""


def page() -> str:
    """The page as Markdown."""
    families = [
        (
            f"`{spec.family}`",
            spec.title,
            ", ".join(spec.media) or "text only",
            "; ".join(f"{name} {', '.join(versions)}" for name, versions in spec.checked.items()),
        )
        for spec in known_families()
    ]
    listed = [_row(one) for one in architectures()]
    remedies = [
        f"* {refusal.why[0].upper()}{refusal.why[1:]}: {refusal.remedy}."
        for refusal in register().refused.values()
    ]
    parts = [
        _INTRODUCTION.format(engine=register().engine),
        "## Families\n",
        *_table(("family", "models", "exact for", "proved equal to"), families),
        f"\n## All {len(listed)} multimodal architectures of {register().engine}\n",
        *_table(("architecture", "state", "family, or why refused"), listed),
        "\n## What to do for a refused model\n",
        *remedies,
    ]
    return "\n".join(parts) + "\n"


_TEXT_INTRODUCTION: Final = """# Text-only models by architecture and model type

This page says what is exact and what is refused under vLLM 0.33.0. [models.md](models.md)
has the rules. `python tools/generate_families.py` writes it from the family specs and the tokenizer
tables.

Completions and token IDs are answered for every architecture here. Any other one is
`unknown_family`. HCXVisionV2ForCausalLM, InklingForConditionalGeneration and MuseGlimmerForCausalLM
of vLLM's text registry take images: [families.md](families.md) has them.
"""
_CHATS: Final = {
    "deepseek_v32": "exact",
    "deepseek_v4": "exact",
    "inkling": "exact",
    "harmony": "exact with the engine's date, else `chat_renderer_unsupported`",
    "mistral_text": "exact",
    "refused": "`chat_renderer_unsupported`",
    "tokenizer_template": "exact",
}
_KEPT: Final = """\
The rule is the same for models that take images. *Kept* means that tokenizer.json is used as it is
written. A class builds the tokenizer anew from it. The declared class is `tokenizer_class` of
tokenizer_config.json, or else of config.json, and the default is for models that declare none. For
a model type that is not here the declared class decides, and the default is *kept*.
"""
_OTHER_CLASSES: Final = (
    ("`PreTrainedTokenizer`, `TokenizersBackend`, `BloomTokenizer`", "kept, exact"),
    ("a name that transformers does not know", "kept, exact"),
    ("every other class of transformers, as `CodeLlamaTokenizer`", "`tokenizer_unverified`"),
    ("any, with `auto_map.AutoTokenizer`", "`tokenizer_unverified`"),
)
_ARCHITECTURES: Final = FieldRef.parse("config.json:architectures")
# A name that transformers does not know, for which it takes its general class.
_UNKNOWN_CLASS: Final = "NoSuchTokenizer"


def text_page() -> str:
    """The page of text-only models as Markdown."""
    specs = [spec for spec in known_families() if spec.chat.renderer in _CHATS and not spec.media]
    by_type = next(table for spec in specs if (table := spec.context_length.by_model_type))
    lengths = [(str(length), _code(types)) for length, types in sorted(by_type.items())]
    parts = [
        _TEXT_INTRODUCTION,
        "## Architectures\n",
        *_table(("family", "chats", "block hashes", "architectures"), map(_text_row, specs)),
        "\n## Which tokenizer a model type has\n",
        _KEPT,
        *_table(("tokenizer", "model types"), _tokenizers()),
        "\n## What a declared class stands for, where it decides\n",
        *_table(("declared, with or without Fast", "tokenizer"), [
            *((f"`{name}`", "built anew, exact") for name in PIPELINES),
            *_OTHER_CLASSES,
        ]),
        "\n## The longest context, where config.json does not say it\n",
        *_table(("tokens", "model types"), lengths),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _text_row(spec: FamilySpec) -> tuple[str, ...]:
    names = [str(name) for name in spec.match.get(_ARCHITECTURES, ())]
    hashes = "with the worker's block size, else `block_size_unknown`" if spec.hybrid else "exact"
    return (
        f"`{spec.family}`",
        _CHATS[spec.chat.renderer],
        hashes,
        _code(names) or "Mistral's format",
    )


def _tokenizers() -> list[tuple[str, str]]:
    types: dict[str, list[str]] = {}
    declared = (*PIPELINES, _UNKNOWN_CLASS)
    for model_type in MODEL_TYPES:
        default = engine_class(model_type, None)
        if default is None:
            rule = "another class of transformers: `tokenizer_unverified`"
        else:
            named = "kept" if default == FILE else f"`{default}`"
            forced = {engine_class(model_type, name) for name in declared} == {default}
            rule = f"always {named}" if forced else f"the declared class; default {named}"
        types.setdefault(rule, []).append(model_type)
    return [(rule, _code(listed)) for rule, listed in sorted(types.items())]


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(one: Architecture) -> tuple[str, ...]:
    state = f"{one.state}: {', '.join(one.modalities)}" if one.modalities else str(one.state)
    families = ", ".join(f"`{spec.family}`" for spec in one.families)
    return f"`{one.name}`", state, families if one.refusal is None else one.refusal.why


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [
        f"| {' | '.join(heading)} |",
        f"|{' --- |' * len(heading)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    TEXT_PAGE.write_text(text_page(), encoding="utf-8")
