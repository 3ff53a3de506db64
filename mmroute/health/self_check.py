"""The self-check of a loaded model: its files, libraries, tokens, and answers to a few requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.answering.routing import Routing
from mmroute.errors import InexactError, MmrouteError, ModelError, Reason
from mmroute.geometry import Replacement
from mmroute.hashing import Algorithm
from mmroute.hashing.chain import compiled, has_extension
from mmroute.health.tested_versions import deciding_versions, untested, version_of
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel
from mmroute.model_directory import EMBEDDED_MODEL, ModelFiles, find_model
from mmroute.placement import PlaceholderRange
from mmroute.placement.blank_lines import MergedBlankLines
from mmroute.requests.items import Image, ImageSize, Modality
from mmroute.requests.request import Request
from mmroute.token_ids import TokenIds

_QUESTION: Final = "What is in this picture?"
# One size in each orientation; no side is a multiple of a patch size.
_SIZES: Final = (ImageSize(641, 479), ImageSize(300, 899))
# Reasons for which a healthy model may have no answer to a probe.
_LIMITS: Final = frozenset({
    Reason.CHAT_RENDERER_UNSUPPORTED, Reason.CHAT_TEMPLATE_MISSING,
    Reason.CHAT_TEMPLATE_NOT_REPRODUCIBLE, Reason.PROMPT_TOO_LONG,
    Reason.UNPROVED_VERSION, Reason.UNSUPPORTED_ENGINE_SETTING,
})  # fmt: skip


def _probes(model: ResolvedModel) -> Iterator[tuple[str, Request]]:
    """The requests for a model by name: text, one image, two images; as a prompt and as a chat."""
    text = {"type": "text", "text": _QUESTION}
    yield "text prompt", Request(prompt=_QUESTION)
    yield "text chat", Request(messages=[{"role": "user", "content": [text]}])
    spec, rules = model.family.image, model.media.get(Modality.IMAGE)
    if spec is None:
        return
    for count in (1, 2) if rules is None else range(1, min(2, rules.max_items) + 1):
        name, images = f"{count} image{'s' * (count > 1)}", _SIZES[:count]
        parts = [{"type": "image"}] * count + [text]
        messages = [{"role": "user", "content": parts}]
        yield f"chat with {name}", Request(messages=messages, images=images)
        placed = [written_image(model, number) for number in range(1, count + 1)]
        if not spec.only_in_chats and None not in placed:
            prompt = "".join(filter(None, placed)) + _QUESTION
            yield f"prompt with {name}", Request(prompt=prompt, images=images)


def written_image(model: ResolvedModel, number: int) -> str | None:
    """The text that the engine writes for an image into a chat; None if no prompt may have it."""
    spec, rules = model.family.image, model.media.get(Modality.IMAGE)
    if spec is None or spec.chat_text is None or rules is None:
        return None
    text = spec.chat_text.replace("{n}", str(number))
    return text if set(rules.target) <= set(model.encode_plain(text).tolist()) else None


def run_probes(model: ResolvedModel) -> tuple[list[str], list[str], list[str]]:
    """Answer every probe twice, and check what must hold for the answers."""
    exact: list[str] = []
    problems: list[str] = []
    limits: list[str] = []
    for name, request in _probes(model):
        first, second = answer(model, request), answer(model, request)
        if first.reason is not None:
            listed = limits if first.reason in _LIMITS else problems
            listed.append(f"{name} is inexact: {first.reason}: {first.message}")
        elif not second.exact or not _same(first, second):
            problems.append(f"{name} has two different answers")
        elif wrong := _wrong(model, request.images, first):
            problems.append(f"{name}: {wrong}")
        else:
            exact.append(name)
    if not exact and not problems and not model.engine.release.unproved:
        problems.append("no built-in request has an exact answer")
    return exact, problems, limits


def token_ids_of_spec(model: ResolvedModel) -> dict[str, int]:
    """The IDs of the family spec's tokens, by name."""
    names = {f"{name}_token_id": name for name in model.family.tokens}
    return {
        names[origin.name]: origin.value
        for origin in model.origins
        if origin.name in names and isinstance(origin.value, int)
    }


def _same(first: Routing, second: Routing) -> bool:
    ids = np.array_equal(first.token_ids, second.token_ids)
    return ids and first.placeholders == second.placeholders


def _wrong(model: ResolvedModel, images: Sequence[Image], routing: Routing) -> str | None:
    """The first error in an exact answer, in words; None for a right answer."""
    ids = routing.token_ids
    if len(ids) and int(ids.max()) > model.max_token_id:
        return f"has the ID {ids.max()}, and the vocabulary ends at {model.max_token_id}"
    counted: list[Replacement] = []
    if images:
        geometry = model.media[Modality.IMAGE].geometry
        counted += geometry.replacements(images, model.context)
    if [p.item for p in routing.placeholders] != list(range(len(counted))):
        return f"has {len(routing.placeholders)} ranges for {len(counted)} images"
    features = np.zeros(len(ids), dtype=np.bool_)
    end = 0
    for placed, replacement in zip(routing.placeholders, counted, strict=True):
        if wrong := _range_wrong(model, placed, replacement, end=end, limit=len(ids)):
            return f"image {placed.item + 1} {wrong}"
        end = placed.offset + placed.length
        features[placed.offset : end] |= _is_embed(placed)
    known = set(token_ids_of_spec(model).values())
    fills = set(ids[features].tolist())
    filled = np.isin(ids, list(fills & known))
    if known and not np.array_equal(features, filled):
        num_filled, num_features = int(filled.sum()), int(features.sum())
        return (
            f"has {num_filled} image tokens and {num_features} positions for features, and these "
            "are not the same positions"
        )
    return None


def _range_wrong(
    model: ResolvedModel,
    placed: PlaceholderRange,
    replacement: Replacement,
    *,
    end: int,
    limit: int,
) -> str | None:
    shared = isinstance(model.placement, MergedBlankLines)
    if placed.offset < end - shared or placed.offset + placed.length > limit:
        return f"stands at {placed.offset}, over its neighbour or the end of the prompt"
    if placed.length != len(replacement.token_ids):
        return f"takes {placed.length} tokens; the geometry counts {len(replacement.token_ids)}"
    embeds = int(_is_embed(placed).sum())
    if embeds != replacement.num_embeds:
        return f"has {embeds} features; the geometry counts {replacement.num_embeds}"
    return None


def _is_embed(placed: PlaceholderRange) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if placed.embed_runs is None:
        return np.ones(placed.length, dtype=np.bool_)
    values, counts = zip(*placed.embed_runs, strict=True)
    return np.repeat(np.array(values, dtype=np.bool_), counts)


_REPEATS: Final = 2
# It has every letter and digit, because a vocabulary with gaps loses some of them.
_TEXT: Final = "The five boxing wizards (1234567890) jump quickly: so what?"
_MISTRAL_FILES: Final = ("params.json", "tekken.json", "tokenizer.model.v")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str  # the name of the check, which is stable
    ok: bool  # whether the check passed
    detail: str  # the value that was found, in words


ModelCheck: TypeAlias = Callable[[ResolvedModel], Check]


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The result of a self-check."""

    model: str  # the model's name, as the caller gave it
    family: str | None  # the model's family; None if the model could not be loaded
    backend: str  # the engine that is matched, and its version
    checks: tuple[Check, ...]  # the checks in the order in which they were made
    # Sentences about versions that were not tested and requests without an answer. They are no sign
    # of a wrong answer.
    warnings: tuple[str, ...] = ()
    # Sentences about settings of the engine on which block hashes depend. They are only guessed, or
    # there are no hashes without them.
    guesses: tuple[str, ...] = ()
    # The SHA-256 of each file on which token IDs may depend, by its name in a model directory.
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> str:
        """The checks that failed, in one line; empty if healthy."""
        return "; ".join(f"{check.name}: {check.detail}" for check in self.checks if not check.ok)

    def verdict(self, *, strict: bool) -> str:
        """What is not as it must be, in a few words; empty if nothing."""
        named = {
            "failed": [check.name for check in self.checks if not check.ok],
            "warnings": [str(len(self.warnings))] if strict and self.warnings else [],
            "hashes": [guess.split(":")[0] for guess in self.guesses] if strict else [],
        }
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in named.items() if names)

    def as_json(self) -> dict[str, Any]:
        """The report as values for JSON."""
        return {"healthy": self.healthy, "mmroute": version_of("mmroute"), **asdict(self)}


def check_model(model: ResolvedModel, *further: ModelCheck) -> HealthReport:
    """Check a loaded model. Its files are read once more, without use of the network."""
    files, fingerprints = _fingerprints(model)
    installed = deciding_versions(model)
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    exact, problems, limits = run_probes(model)
    encoded = model.tokenizer.encode(_TEXT, add_special_tokens=False)
    back = model.tokenizer.decode(encoded.tolist())
    lost = [] if back == _TEXT else [f"{_TEXT!r} is {back!r} after encoding and decoding"]
    checks = [
        files,
        Check("engine", ok=True, detail=model.engine.release.label),
        Check("versions", ok=True, detail=versions),
        Check("encoder", ok=True, detail=_encoder(model)),
        Check("block_hashes", ok=True, detail=_hasher()),
        *_settings(model),
        _check("special_tokens", _split_tokens(model), f"{_named(model)}: one ID each"),
        _check("text", lost, "a text is the same after encoding and decoding"),
        _check("requests", problems, f"as they must be: {', '.join(exact)}"),
    ]
    return HealthReport(
        model=model.name,
        family=model.family.family,
        backend=model.engine.release.label,
        checks=(*checks, *(check(model) for check in further)),
        warnings=(*untested(model, installed), *limits, *_not_compiled()),
        guesses=(
            *model.hashing.settings.guesses(with_media=bool(model.media)),
            *_not_hashed(model, encoded),
        ),
        fingerprints=fingerprints,
    )


def load_and_check(
    model: str | os.PathLike[str], *further: ModelCheck, **loading: Any
) -> HealthReport:
    """Load a model and check it. There is a report, too, if the model cannot be loaded."""
    try:
        resolved = resolve_model(os.fspath(model), **loading)
    except MmrouteError as error:
        refused = Check("load", ok=False, detail=f"{error.reason}: {error}")
        return HealthReport(os.fspath(model), None, loading.get("backend", "vllm"), (refused,))
    return check_model(resolved, *further)


def _settings(model: ResolvedModel) -> Iterator[Check]:
    """The settings that block hashes depend on, without those that were guessed."""
    known = model.hashing.settings
    if not (known.model_id_guessed and model.media):
        yield Check("model_id", ok=True, detail=model.model_id)
    if known.block_size is not None and not known.block_size_guessed:
        yield Check("block_size", ok=True, detail=f"{known.block_size} tokens")


def _not_hashed(model: ResolvedModel, token_ids: TokenIds) -> Iterator[str]:
    """Why a prompt of these token IDs has no block hashes under the engine's settings."""
    if not model.hashing.settings.keeps_blocks:
        yield "none: with --no-enable-prefix-caching the engine keeps no block for later requests"
    routing = answer(model, Request(prompt_token_ids=token_ids.tolist()))
    if not routing.exact:
        return  # the probes say why
    size = model.hashing.settings.block_size or 1  # `guesses` says that there is none
    try:
        routing.hashes(block_size=size)
    except (InexactError, ValueError) as error:
        yield f"none: {error}"


def _check(name: str, problems: Sequence[str], detail: str) -> Check:
    return Check(name, ok=not problems, detail="; ".join(problems) or detail)


def _fingerprints(model: ResolvedModel) -> tuple[Check, dict[str, str]]:
    try:
        files = _files(model)
        # A directory may also hold the tokenizer of the other format, which is not read.
        mistral = model.family.tokenizer.has_chat_encoder
        names = [name for name in files.names() if name.startswith(_MISTRAL_FILES) == mistral]
        if "tekken.json" in names:  # the older vocabularies beside it are not read either
            names = [name for name in names if not name.startswith("tokenizer.model.v")]
        fingerprints = {
            name: sha256(files.path(name).read_bytes()).hexdigest() for name in sorted(names)
        }
    except (OSError, ModelError) as error:
        return Check("files", ok=False, detail=f"cannot be read again: {error}"), {}
    # A directory without files has no fingerprint, so it must not pass.
    detail = (
        f"{len(fingerprints)} in {files.root}"
        if fingerprints
        else f"{files.root} has none any more"
    )
    return Check("files", ok=bool(fingerprints), detail=detail), fingerprints


def _files(model: ResolvedModel) -> ModelFiles:
    """The model's files, found again without the network."""
    if model.commit is not None:
        from huggingface_hub import try_to_load_from_cache  # only hub names need it

        for name in ("config.json", "params.json"):
            path = try_to_load_from_cache(model.name, name, revision=model.commit)
            if isinstance(path, str):
                return ModelFiles(model.name, Path(path).parent, model.commit)
    elif model.name == EMBEDDED_MODEL or Path(model.name).expanduser().is_dir():
        return find_model(model.name)
    raise ModelError(Reason.MISSING_FILE, f"{model.name} is no longer where it was loaded from")


def _named(model: ResolvedModel) -> str:
    named = [f"{name} {token_id}" for name, token_id in token_ids_of_spec(model).items()]
    return f"{', '.join(named) or 'none'} and {len(model.tokenizer.named_tokens)} others"


def _encoder(model: ResolvedModel) -> str:
    stats = model.tokenizer.encoder_stats()
    if stats is None:
        return "the model's own chat encoder, of mistral-common"
    return f"{stats.engine}: {stats.why}"


def _hasher() -> str:
    by_extension = [algorithm for algorithm in Algorithm if compiled(algorithm)]
    by_python = [algorithm for algorithm in Algorithm if not compiled(algorithm)]
    parts = [(by_extension, "compiled"), (by_python, "Python")]
    return "; ".join([f"{name}: {', '.join(chosen)}" for chosen, name in parts if chosen])


def _not_compiled() -> list[str]:
    if has_extension():
        return []
    # A checkout in the working directory comes before the installed package.
    place = f"{Path(__file__).parents[1]} has no compiled parts"
    slow = "so block hashes take up to ten times as long"
    remedy = "run outside of a checkout, or install where there is a C compiler"
    return [f"{place}, {slow}: {remedy}, with MMROUTE_BUILD_EXTENSION=1 to see why it fails"]


def _split_tokens(model: ResolvedModel) -> list[str]:
    """The tokens of family spec and model that the loaded tokenizer does not encode as one ID."""
    tokenizer = model.tokenizer
    wanted = {
        tokenizer.decode([token_id]): token_id for token_id in token_ids_of_spec(model).values()
    }
    problems = [
        f"{text!r} is the text of {token_id} and encoded as {tokenizer.token_id(text)}"
        for text, token_id in wanted.items()
        if tokenizer.token_id(text) != token_id
    ]
    if problems or not tokenizer.reads_special_tokens:
        return problems
    named = {text: tokenizer.token_id(text) for text in tokenizer.named_tokens}
    for text, token_id in (named | wanted).items():
        alone = tokenizer.encode(text, add_special_tokens=False).tolist()
        amid = tokenizer.encode(f"a {f'{text} ' * _REPEATS}b", add_special_tokens=False).tolist()
        if token_id is None or alone != [token_id] or amid.count(token_id) != _REPEATS:
            problems.append(f"{text!r} must be the one ID {token_id}, and is encoded as {alone}")
    return problems
