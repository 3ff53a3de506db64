"""Finds options that the engine has and mmroute was not told, by trying one after the other.

It does not reason about a difference: of a table of changes of one option, the one is kept that
makes most answers equal, and then the others are tried beside it. Values that the engine's events
and its server tell are taken first.
"""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from mmroute.cli.output import show_progress
from mmroute.engine import PYTHON
from mmroute.engines.running import RunningEngine
from mmroute.engines.vllm.identity import HASHERS
from mmroute.engines.vllm.settings import VllmSettings, as_vllm
from mmroute.engines.vllm.versions import ERAS
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.errors import MmrouteError
from mmroute.lab.parity.comparison import Finding, Verdict
from mmroute.model.resolve import resolve_model, with_same_prompts
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import find_model
from mmroute.requests.items import Modality
from mmroute.reuse.fast_paths import REFERENCE_ONLY

Compare: TypeAlias = Callable[[ResolvedModel], Iterable[Finding]]
"""Compares a model of other settings with the same answers."""

_ROUNDS: Final = 4
_AGREED: Final = (Verdict.EQUAL, Verdict.REFUSED)
_DEFAULTS: Final = VllmSettings()
# Options and variables that may be given here and not be the engine's.
_TAKEN_OUT: Final = {
    "PYTHONHASHSEED": "hash_seed",
    "--chat-template": "chat_template",
    "--default-chat-template-kwargs": "chat_template_kwargs",
}
_TEMPLATE_SWITCHES: Final = ({"enable_thinking": False}, {"enable_thinking": True},
                             {"thinking": False}, {"thinking": True})  # fmt: skip
_OF_HUB: Final = "models--"
# Source: vLLM ``renderers/params.py``, ``v1/engine/input_processor.py``. Encoders have another one.
_CONTEXT: Final = re.compile(
    r"maximum context length is (\d+) tokens|The decoder prompt .* maximum model length of (\d+)"
)
# Source: vLLM ``multimodal/processing/context.py`` (`validate_num_items`).
_LIMIT: Final = re.compile(r"At most (\d+) (\w+)\(s\) may be provided in one prompt")
# Source: vLLM ``multimodal/media/image.py``.
_PIXELS: Final = re.compile(r"exceed the maximum of (\d+) pixels\. Set VLLM_MAX_IMAGE_PIXELS")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one option."""

    name: str  # the option or variable
    value: object  # "" for an option without one, and None to take it out of the line
    fields: Mapping[str, Any]  # the fields of the settings that it changes
    backend: str = ""  # the engine and version, if the change is of these; else empty
    rust: bool | None = None  # whether vLLM's frontend in Rust answers, if the change is of that

    def __str__(self) -> str:
        if self.value is None:
            return f"take {self.name} out of the line"
        if self.value == "":
            return self.name
        between = " " if self.name.startswith("-") else "="
        return f"{self.name}{between}{shlex.quote(str(self.value))}"


def proposal(
    model: ResolvedModel,
    findings: Sequence[Finding],
    compare: Compare,
    *,
    running: RunningEngine | None = None,
    told: Sequence[Change] = (),
) -> str:
    """A sentence with the options that make more answers equal; empty if none does.

    What the engine's events tell is taken as it is.
    """
    agreed = best = _num_agreed(findings)
    if not any(map(_is_wrong, findings)) or not isinstance(model.settings, VllmSettings):
        return ""
    kept: list[Change] = []
    found = findings
    if told and (under_told := _tried(model, told, compare)):
        kept, found, best = [*told], under_told, _num_agreed(under_told)
    for _ in range(_ROUNDS):
        better: tuple[list[Change], Sequence[Finding]] | None = None
        table = {str(change): change for change in _table(model, found, running)}
        for change in table.values():
            if not any(map(_is_wrong, better[1] if better else found)):
                break
            changes = [*(each for each in kept if each.name != change.name), change]
            tried = _tried(model, changes, compare)
            if tried and _num_agreed(tried) > best:
                best, better = _num_agreed(tried), (changes, tried)
        if better is None:
            break
        kept, found = better
    if best <= agreed:
        return ""
    decided = best + sum(map(_is_wrong, found))
    return f"proposed: {_listed(kept)}; with these {best} of {decided} would be equal"


def _is_wrong(finding: Finding) -> bool:
    return finding.verdict in (Verdict.SILENT, Verdict.UNNEEDED)


def _num_agreed(findings: Iterable[Finding]) -> int:
    return sum(finding.verdict in _AGREED for finding in findings)


def _tried(
    model: ResolvedModel, changes: Sequence[Change], compare: Compare
) -> Sequence[Finding] | None:
    """The findings under other settings; None if the model cannot be loaded with them."""
    show_progress(f"trying {_listed(changes)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about settings that nobody gave
            return list(compare(_changed(model, changes)))
    except MmrouteError:
        return None
    finally:
        show_progress("")


def _changed(model: ResolvedModel, changes: Sequence[Change]) -> ResolvedModel:
    backend, settings = model.engine.release.backend, as_vllm(model.settings)
    for change in changes:
        backend = change.backend or backend
        if change.rust is not None:
            kind = RustSettings if change.rust else VllmSettings
            own = {field.name: getattr(settings, field.name) for field in fields(settings)}
            settings = kind(**own)
        settings = replace(settings, **change.fields)
    renamed = any("model" in change.fields for change in changes)
    model_id = None if renamed else model.model_id
    accepted = model.engine.release.version
    same = with_same_prompts(model, backend, model_id, settings, accepted)
    return same or resolve_model(
        model.name,
        backend=backend,
        model_id=model_id,
        revision=model.commit,
        fast_paths=REFERENCE_ONLY,
        engine_settings=settings,
        accept_version=accepted,
    )


def _listed(changes: Sequence[Change]) -> str:
    """Variables and options as they stand in a line, and then those to take out of it."""
    added = [change for change in changes if change.value is not None]
    added.sort(key=lambda change: change.name.startswith("-"))
    taken_out = [str(change) for change in changes if change.value is None]
    return ", ".join(filter(None, [" ".join(map(str, added)), *taken_out]))


def _table(
    model: ResolvedModel, findings: Sequence[Finding], running: RunningEngine | None
) -> Iterator[Change]:
    """The changes to try, those first whose values the engine tells."""
    settings = as_vllm(model.settings)
    if running is not None and running.model_string:
        yield _string(running.model_string)
    if running is not None and running.max_model_len:
        yield _context(running.max_model_len)
    for finding in findings:
        yield from _of_refusal(settings, finding)
    for name, field in _TAKEN_OUT.items():
        default = getattr(_DEFAULTS, field)
        if getattr(settings, field) != default:
            yield Change(name, None, {field: default})
    yield Change("--trust-request-mm-kwargs", "", {"trust_request_mm_kwargs": True})
    yield from _of_names(model)
    if running is None or running.frontend != model.engine.release.frontend:
        rust = model.engine.release.frontend == PYTHON
        yield Change("VLLM_USE_RUST_FRONTEND", int(rust), {}, rust=rust)
    yield from _of_templates(model)


def _of_names(model: ResolvedModel) -> Iterator[Change]:
    """Changes of the identities of items."""
    for string in dict.fromkeys(filter(None, _spellings_of(model))):
        if string != model.model_id:
            yield _string(string)
    for algorithm in HASHERS:
        yield Change("--mm-hasher-algorithm", algorithm, {"identity_algorithm": algorithm})
    yield Change("--enable-tower-connector-lora", "", {"lora_in_identities": True})
    for era in ERAS:
        backend = era.release.backend
        yield Change("--backend", backend, {}, backend=backend)


def _of_templates(model: ResolvedModel) -> Iterator[Change]:
    for form in ("openai", "string"):
        yield Change("--chat-template-content-format", form, {"content_format": form})
    if Path(model.name).is_dir():
        for template in sorted(Path(model.name).glob("*.jinja")):
            yield Change("--chat-template", template, {"chat_template": str(template)})
    known = as_vllm(model.settings).chat_template_kwargs
    for switch in _TEMPLATE_SWITCHES:
        yield _merged("--default-chat-template-kwargs", "chat_template_kwargs", known, switch)


def _string(string: str) -> Change:
    return Change("--model", string, {"model": string})


def _context(tokens: int) -> Change:
    return Change("--max-model-len", tokens, {"max_model_len": tokens})


def _merged(
    option: str, field: str, known: Mapping[str, Any], changed: Mapping[str, Any]
) -> Change:
    """An option whose value is an object, with the keys that the settings already have."""
    value = {**known, **changed}
    return Change(option, json.dumps(value), {field: value})


def _of_refusal(settings: VllmSettings, finding: Finding) -> Iterator[Change]:
    """The limits that a refusal names, or the engine's answer to what mmroute refuses."""

    def limit(modality: str, count: int) -> Change:
        counts = {modality: count}
        return _merged("--limit-mm-per-prompt", "limits", settings.limits, counts)

    if finding.verdict is Verdict.UNNEEDED:
        for modality in Modality:
            if (count := finding.case.num_items[modality]) > 1:
                yield limit(modality.value, count)
        return
    refusal = (finding.theirs and finding.theirs.refusal) or ""
    if finding.verdict is not Verdict.SILENT or not refusal:
        return
    if context := _CONTEXT.search(refusal):
        yield _context(int(context[1] or context[2]))
    elif found := _LIMIT.search(refusal):
        yield limit(found[2], int(found[1]))
    elif pixels := _PIXELS.search(refusal):
        count = int(pixels[1])
        yield Change("VLLM_MAX_IMAGE_PIXELS", count, {"max_image_pixels": count})


def _spellings_of(model: ResolvedModel) -> Iterator[str]:
    """Model strings by which an engine may have been started with a model's files."""
    path = Path(model.name)
    bare = model.name.rstrip("/")
    named = (model.name, bare, f"{bare}/", path.name, f"./{path.name}")
    yield from named
    for part in path.parts:
        if part.startswith(_OF_HUB):  # a snapshot in the hub's cache
            yield part.removeprefix(_OF_HUB).replace("--", "/")
    # The hub knows a name in any letter case, and an identity does not.
    yield from (*model.settings.served_names, "/".join(path.parts[-2:]))
    yield from map(str.lower, (model.model_id, *named))
    if path.is_dir():
        yield from (str(path.absolute()), str(path.resolve()), f"{path.resolve()}/")
        files = find_model(model.name)
        if files.has("config.json"):
            # Where the files have the name by which they were published.
            yield str(files.object("config.json").get("_name_or_path") or "")
