"""The options of SGLang that `validate` tries where answers differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from mmroute.engines.running import RunningEngine
from mmroute.engines.sglang.settings import SglangSettings
from mmroute.lab.engines.template_changes import merged, template_changes
from mmroute.lab.parity.causes import Change
from mmroute.lab.parity.comparison import Finding, Verdict
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import Modality

_DEFAULTS: Final = SglangSettings()
_CACHE_MB: Final = 256
# Options that may be given here and not be the engine's, with the settings that they change.
_TAKEN_OUT: Final = {
    "--chat-template": ("chat_template",),
    "--default-chat-template-kwargs": ("chat_template_kwargs",),
    "--disable-fast-image-processor": ("disable_fast_image_processor", "image_processor_backend"),
    "--enable-multimodal": ("enable_multimodal",),
    "--image-processor-backend": ("image_processor_backend",),
    "--mm-feature-transport": ("feature_transport",),
    "--mm-preprocess-cache-size-mb": ("preprocess_cache_mb",),
    "--mm-process-config": ("mm_process_config",),
    "--revision": ("revision",),
}
# Source: SGLang 0.5.23 ``srt/managers/tokenizer_manager.py``.
_CONTEXT: Final = re.compile(r"model's (?:maximum )?context length \(?(?:of )?(\d+) tokens")
_LIMIT: Final = re.compile(r"(\w+) count \d+ exceeds limit (\d+) per request")


def changes(
    model: ResolvedModel, findings: Iterable[Finding], running: RunningEngine | None
) -> Iterator[Change]:
    """See `mmroute.lab.engines.Judge`."""
    settings = model.settings
    if not isinstance(settings, SglangSettings):
        return
    if running is not None and running.max_model_len:
        yield _context(running.max_model_len)
    for finding in findings:
        yield from _of_refusal(settings, finding)
    for option, fields in _TAKEN_OUT.items():
        if getattr(settings, fields[0]) != getattr(_DEFAULTS, fields[0]):
            yield Change(option, None, {field: getattr(_DEFAULTS, field) for field in fields})
    yield Change("--enable-multimodal", "", {"enable_multimodal": True})
    yield from _of_pictures()
    yield from template_changes(model, settings.chat_template_kwargs)


def _of_pictures() -> Iterator[Change]:
    """What identities of files cover, and when there are such."""
    size = {"preprocess_cache_mb": _CACHE_MB}
    yield Change("--mm-preprocess-cache-size-mb", _CACHE_MB, size)
    pil = {"image_processor_backend": "pil"}
    yield Change("--image-processor-backend", "pil", pil)
    slow = {**pil, "disable_fast_image_processor": True}
    yield Change("--disable-fast-image-processor", "", slow)
    for modality in Modality:
        config: dict[str, Any] = {modality.value: {}}
        yield merged("--mm-process-config", "mm_process_config", {}, config)
    for transport in ("cuda_ipc", "cuda_vmm"):
        yield Change("--mm-feature-transport", transport, {"feature_transport": transport})
    yield Change("--revision", "main", {"revision": "main"})


def _context(tokens: int) -> Change:
    return Change("--context-length", tokens, {"context_length": tokens})


def _of_refusal(settings: SglangSettings, finding: Finding) -> Iterator[Change]:
    """The limits that a refusal names, or the engine's answer to what mmroute refuses."""
    if finding.verdict is Verdict.UNNEEDED:
        for modality, most in settings.max_items.items():
            if (count := finding.case.num_items[modality]) > most:
                yield _limit(settings, modality, count)
    refusal = (finding.theirs and finding.theirs.refusal) or ""
    if finding.verdict is not Verdict.SILENT or not refusal:
        return
    if context := _CONTEXT.search(refusal):
        yield _context(int(context[1]))
    elif (found := _LIMIT.search(refusal)) and found[1].lower() in set(Modality):
        yield _limit(settings, Modality(found[1].lower()), int(found[2]))


def _limit(settings: SglangSettings, modality: Modality, count: int) -> Change:
    limits = {modality: count}
    return merged("--limit-mm-data-per-request", "max_items", settings.max_items, limits)
