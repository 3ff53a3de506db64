"""The options of vLLM that `validate` tries where answers differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mmroute.engines.running import RunningEngine
from mmroute.engines.vllm.identity import HASHERS
from mmroute.engines.vllm.settings import VllmSettings, as_vllm
from mmroute.engines.vllm.versions import ERAS
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.lab.engines.template_changes import merged, template_changes
from mmroute.lab.parity.causes import Change
from mmroute.lab.parity.comparison import Finding, Verdict
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import find_model
from mmroute.release import PYTHON
from mmroute.requests.items import Modality

_DEFAULTS: Final = VllmSettings()
# Options and variables that may be given here and not be the engine's.
_TAKEN_OUT: Final = {
    "PYTHONHASHSEED": "hash_seed",
    "--chat-template": "chat_template",
    "--default-chat-template-kwargs": "chat_template_kwargs",
}
_OF_HUB: Final = "models--"
# Source: vLLM ``renderers/params.py``, ``v1/engine/input_processor.py``. Encoders have another one.
_CONTEXT: Final = re.compile(
    r"maximum context length is (\d+) tokens|The decoder prompt .* maximum model length of (\d+)"
)
# Source: vLLM ``multimodal/processing/context.py`` (`validate_num_items`).
_LIMIT: Final = re.compile(r"At most (\d+) (\w+)\(s\) may be provided in one prompt")
# Source: vLLM ``multimodal/media/image.py``.
_PIXELS: Final = re.compile(r"exceed the maximum of (\d+) pixels\. Set VLLM_MAX_IMAGE_PIXELS")


def changes(
    model: ResolvedModel, findings: Iterable[Finding], running: RunningEngine | None
) -> Iterator[Change]:
    """See `mmroute.lab.engines.Prover`."""
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
        kind = RustSettings if rust else VllmSettings
        yield Change("VLLM_USE_RUST_FRONTEND", int(rust), {}, kind=kind)
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
    yield from template_changes(model, as_vllm(model.settings).chat_template_kwargs)


def _string(string: str) -> Change:
    return Change("--model", string, {"model": string})


def _context(tokens: int) -> Change:
    return Change("--max-model-len", tokens, {"max_model_len": tokens})


def _of_refusal(settings: VllmSettings, finding: Finding) -> Iterator[Change]:
    """The limits that a refusal names, or the engine's answer to what mmroute refuses."""

    def limit(modality: str, count: int) -> Change:
        counts = {modality: count}
        return merged("--limit-mm-per-prompt", "limits", settings.limits, counts)

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
