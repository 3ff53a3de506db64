"""vLLM 0.33.0 and 0.32.0 behind their Rust frontends, by the defaults of those servers.

The engine is the same. The frontend differs from messages to token IDs, and in the names of images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from mmroute.chat import Chat
from mmroute.engine import ChatSource
from mmroute.engines.vllm import versions
from mmroute.engines.vllm.configured import configured_chat, unsupported
from mmroute.engines.vllm.defaults import check_client
from mmroute.engines.vllm.engine import VllmEngine
from mmroute.engines.vllm.profile import VLLM
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.engines.vllm_rust.families import as_served
from mmroute.engines.vllm_rust.image_files import file_identity
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.errors import InexactError, ModelError, Reason
from mmroute.families.spec import FamilySpec
from mmroute.model_directory import JsonValue, ModelFiles
from mmroute.release import nearest_era
from mmroute.requests.checks import check_cache_salt
from mmroute.requests.request import Request
from mmroute.reuse.fast_paths import FastPaths
from mmroute.tokenizers import Tokenizer

_DEFAULTS: Final = RustSettings()


@dataclass(frozen=True, slots=True)
class RustEngine(VllmEngine):
    """vLLM behind its Rust frontend, which has one tokenizer, and any renderer for any model."""

    settings: VllmSettings = _DEFAULTS

    @property
    def earlier(self) -> bool:
        """Whether the frontend is that of 0.32.0."""
        return self.release.era != VLLM.release.era

    def settle(self, family: FamilySpec, files: ModelFiles, model_string: str) -> FamilySpec:
        given = self.settings
        why = "vLLM's Rust frontend does not start with it"
        if given.tokenizer_mode == "mistral":
            raise unsupported("--tokenizer-mode mistral", why)
        if (
            given.mm_processor_kwargs
            or given.media_io_kwargs
            or given.lora_in_identities
            or given.identity_algorithm != "blake3"
        ):
            raise unsupported(
                "--mm-processor-kwargs, --media-io-kwargs, --mm-hasher-algorithm or "
                "--enable-tower-connector-lora",
                why,
            )
        return as_served(self.covered(family), files, self.release.version, model_string)

    def load_tokenizer(
        self,
        files: ModelFiles,
        _family: FamilySpec,
        fast_paths: FastPaths,
        note: Callable[[str, JsonValue, str], None],
    ) -> Tokenizer:
        from mmroute.engines.vllm_rust.tokenizer import load_tokenizer  # tokenizers

        file = "tekken.json" if files.has("tekken.json") else "tokenizer.json"
        note("tokenizer", f"{file} as it is written", "the frontend")
        return load_tokenizer(files, fast_paths)

    def load_chat(self, source: ChatSource[VllmSettings]) -> Chat:
        from mmroute.engines.vllm_rust.chats import load_chat  # jinja2

        chat = load_chat(source, earlier=self.earlier)
        return configured_chat(chat, self.settings, source.files.name)

    def accept(self, request: Request, chat: Chat) -> Request:
        try:
            check_cache_salt(request.cache_salt)
        except InexactError as error:
            if self.earlier:  # which may take what the newest one refuses
                raise InexactError(Reason.UNSUPPORTED_FIELD, str(error)) from None
            raise
        check_client(request, self.settings, chat)
        return request  # its chats know the settings


_LIMITS: Final[dict[str, Any]] = {
    "takes_metadata": False,  # its processor was not compared
    "local_media_path": None,
    "max_image_pixels": 1 << 26,  # eight bytes each fill what its decoder may take
}
_V0_32: Final = versions.find_version("0.32.0")
VLLM_RUST: Final = RustEngine(
    replace(VLLM.release, prompts="vllm-rust", frontend="rust"),
    replace(VLLM.limits, **_LIMITS),
    replace(VLLM.naming, identify=file_identity),
    VLLM.hashes,
)
RUST_ERAS: Final = (
    VLLM_RUST,
    RustEngine(
        replace(_V0_32.release, prompts="vllm-rust-0.32", frontend="rust"),
        replace(_V0_32.limits, **_LIMITS, applies_exif_orientation=False),
        replace(_V0_32.naming, identify=partial(file_identity, turned=False)),
        _V0_32.hashes,
    ),
)
"""The newest first."""


def find_version(version: str) -> RustEngine:
    """The frontend of a release of vLLM; the newest for an empty text."""
    for engine in RUST_ERAS:
        own = engine.release.version
        if version in ("", own, own.rpartition(".")[0]):
            return engine
    if (nearest := nearest_era(version, RUST_ERAS[:1])) is not None:
        return nearest
    known = " and ".join(engine.release.backend for engine in RUST_ERAS)
    raise ModelError(
        Reason.UNSUPPORTED_ENGINE_SETTING,
        f"VLLM_USE_RUST_FRONTEND: the Rust frontend of vllm=={version} is not covered, only that "
        f"of {known}; requests to this engine cannot be answered exactly",
    )
