"""vLLM in one era, with the parts that `mmroute.engine.Engine` asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mmroute.chat import Chat
from mmroute.engine import (
    ChatSource,
    Context,
    Engine,
    EngineSettings,
    Limits,
    Naming,
    find_engine,
    not_covered,
    own_settings,
)
from mmroute.engines.vllm.defaults import processor_kwargs, with_defaults
from mmroute.engines.vllm.hashes import VllmHashes
from mmroute.engines.vllm.overrides import of_items
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.families.spec import FamilySpec
from mmroute.hashing.hashes import Hashes
from mmroute.model.tokenizer import load_tokenizer
from mmroute.model_directory import ModelFiles
from mmroute.release import Release
from mmroute.requests.checks import check_cache_salt
from mmroute.requests.items import Modality
from mmroute.requests.request import Request

_DEFAULTS = VllmSettings()
_INTERLEAVED = "--interleave-mm-strings: chats with items of such an engine are not covered"


@dataclass(frozen=True, slots=True)
class VllmEngine:
    """See `mmroute.engine.Engine`. Another era is a `replace` of its neighbour."""

    release: Release  # the version and the era
    limits: Limits  # what the engine takes
    naming: Naming  # how it tells items apart
    hashes: VllmHashes  # how it hashes prompts
    settings: VllmSettings = _DEFAULTS  # the options with which it was started
    load_tokenizer = staticmethod(load_tokenizer)

    def under(self, settings: EngineSettings) -> Engine:
        own = own_settings(self, settings, type(self.settings))
        plain = find_engine(f"{own.engine}=={self.release.version}")  # behind its frontend
        limits: dict[str, Any] = {
            "min_encoder_cache": own.max_num_batched_tokens,
            "max_image_pixels": own.max_image_pixels,
            "max_decoded_bytes": own.max_decoded_bytes,
            "max_items": {**plain.limits.max_items, **own.limits},
            "media_domains": own.media_domains,
            "local_media_path": plain.limits.local_media_path is not None and own.local_media_path,
            "processor_cache_off": own.processor_cache_off,
            "string_items": own.interleaves_items and _INTERLEAVED,
        }
        naming = replace(plain.naming, loras=own.loras, lora_first=own.lora_in_identities)
        if own.loras:
            from mmroute.engines.vllm.configured import adapter_of_parts

            naming = replace(naming, why_unhashed=partial(adapter_of_parts, own.loras))
        if own.identity_algorithm != "blake3":
            identify = partial(naming.identify, algorithm=own.identity_algorithm)
            naming = replace(naming, identify=identify)
        changed = {name: value for name, value in limits.items() if value}
        # The geometries tell of their largest items alone.
        changed["plans_largest"] = not own.planned_sizes
        return replace(plain, limits=replace(plain.limits, **changed), naming=naming, settings=own)

    def match(self, files: ModelFiles) -> tuple[ModelFiles, FamilySpec]:
        from mmroute.engines.vllm.configured import matched  # pydantic

        return matched(files, self.settings)

    def settle(self, family: FamilySpec, files: ModelFiles, model_string: str) -> FamilySpec:
        from mmroute.engines.vllm import configured

        settled = self.covered(family)
        configured.check_tokenizer_mode(self.settings, settled)
        return settled

    def covered(self, family: FamilySpec) -> FamilySpec:
        """The family for this era, if it and the settings are covered."""
        from mmroute.engines.vllm import configured

        family = family.for_engine(self.release.name, self.release.version)
        if self.settings.system_instructions and family.chat.renderer == "harmony":
            raise configured.unsupported(
                "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS", "its effect on chats is not covered"
            )
        if family.refused:
            raise not_covered(family, self.release.label, family.refused)
        configured.check_template_kwargs(self.settings)
        return family

    def context(self, files: ModelFiles, family: FamilySpec, positions: int) -> Context:
        from mmroute.engines.vllm.configured import configured_context

        newest = find_engine(self.release.name).release.era
        return configured_context(
            self.settings, files, family, positions, is_newest=self.release.era == newest
        )

    def hashes_of(
        self,
        family: FamilySpec,
        files: Callable[[], ModelFiles],
        model_string: str,
        *,
        guessed: bool,
    ) -> Hashes:
        from mmroute.engines.vllm.configured import configured_hashing

        return configured_hashing(
            self.hashes, self.settings, family, files, model_string, guessed=guessed
        )

    def load_chat(self, source: ChatSource[VllmSettings]) -> Chat:
        from mmroute.engines.vllm.chats import load_chat  # jinja2
        from mmroute.engines.vllm.configured import configured_chat

        return configured_chat(load_chat(source), self.settings, source.files.name)

    def read_body(self, body: Mapping[str, Any]) -> Request:
        from mmroute.engines.vllm.bodies.schemas import parse_body  # pydantic

        return parse_body(body, self.release.backend)

    def accept(self, request: Request, chat: Chat) -> Request:
        check_cache_salt(request.cache_salt)
        return with_defaults(request, self.settings, chat)

    def adds_special_tokens(self, _chat: Chat, request: Request, _items: bool) -> bool:
        return request.add_special_tokens

    def processor_kwargs(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return processor_kwargs(self.settings.mm_processor_kwargs, given)

    def media_io(self, modality: Modality) -> Mapping[str, Any]:
        return self.settings.media_io_kwargs.get(modality, {})

    def refused_media(self, modality: Modality) -> str:
        refused = [self.settings.media_refused.get(modality, "")]
        if keys := of_items(self.settings.hf_overrides):
            refused.append(f"--hf-overrides ({keys})")
        return ", ".join(filter(None, refused))

    @property
    def dtype(self) -> str | None:
        return self.settings.dtype
