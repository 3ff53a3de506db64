"""The public class of a loaded model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from mmroute.answering.batch import normalize_many
from mmroute.answering.pipeline import NO_CACHES, Caches, answer, answer_for
from mmroute.answering.routing import Routing
from mmroute.answering.stages import Stopwatch
from mmroute.engine import EngineSettings
from mmroute.errors import ModelError, Reason, quoted
from mmroute.net.links import ImageLinks
from mmroute.requests.request import Request, RequestFields
from mmroute.reuse.fast_paths import FastPaths, Stats

if TYPE_CHECKING:
    from mmroute.model.resolved import ResolvedModel


@dataclass(frozen=True, slots=True, eq=False)
class Normalizer:
    """Computes the token IDs that an engine will hold for a request to one model.

    Immutable, and safe to share between threads.

    Attributes:
        model: the resolved model.
        links: the permission to follow links to images; None to follow none.
        caches: the caches of work that earlier requests did.
        watch: the stopwatch that times the stages of requests; None for no timing.
    """

    model: ResolvedModel
    links: ImageLinks | None = None
    caches: Caches = NO_CACHES
    watch: Stopwatch | None = None
    _loaded_with: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        model = self.model
        return f"<Normalizer of {model.name}: {model.family.family}, {model.engine.release.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments of `from_pretrained`, with which another process loads the model."""
        if self._loaded_with is None:
            raise TypeError("only a Normalizer made by from_pretrained can be pickled")
        return _load, (self._loaded_with,)

    @classmethod
    def from_pretrained(
        cls,
        model: str | os.PathLike[str],
        *,
        backend: str = "vllm",
        model_id: str | None = None,
        revision: str | None = None,
        token: str | None = None,
        links: ImageLinks | None = None,
        self_check: bool = False,
        fast_paths: FastPaths | None = None,
        engine_settings: EngineSettings | None = None,
        accept_version: str | None = None,
    ) -> Normalizer:
        """Load a model.

        Args:
            model: a directory, a hub name, or ``pixtral-12b-2409``, which needs no download.
            backend: the engine whose behaviour is matched; see `mmroute.engines`.
            model_id: the engine's model string, which image identities cover. It is needed only if
                it differs from `model` and is not in `engine_settings`.
            revision: a branch, tag or commit on the hub.
            token: the access token for the hub.
            links: the permission to follow http and https links to images, which takes time.
                Without it, give the sizes of such images in `images`.
            self_check: whether to check the loaded model by a few requests, as ``mmroute doctor``
                does.
            fast_paths: the choice of the encoder and the sizes of the caches; None for the
                defaults.
            engine_settings: the options with which the engine was started; None for its defaults.
                See `EngineSettings.from_args`.
            accept_version: the version in `backend`, if nobody compared it and you accept the
                answers of the nearest era. Without it they are inexact, `unproved_version`.

        Raises:
            ModelError: the model cannot be loaded exactly; the message says what to do.

        A model directory is trusted: its chat template is a program that runs, sandboxed but
        unlimited in time and memory.
        """
        if links is not None and not isinstance(links, ImageLinks):
            raise TypeError(f"links must be an ImageLinks, found {quoted(links)}")
        if fast_paths is not None and not isinstance(fast_paths, FastPaths):
            raise TypeError(f"fast_paths must be a FastPaths, found {quoted(fast_paths)}")
        if engine_settings is not None and not isinstance(engine_settings, EngineSettings):
            raise TypeError(
                f"engine_settings must be an EngineSettings, found {quoted(engine_settings)}"
            )
        from mmroute.model.resolve import resolve_model  # jinja2, pydantic

        fast_paths = fast_paths or FastPaths()
        source: dict[str, Any] = {
            "model": os.fspath(model),
            "backend": backend,
            "model_id": model_id,
            "revision": revision,
            "token": token,
            "fast_paths": fast_paths,
            "engine_settings": engine_settings,
            "accept_version": accept_version,
        }
        if self_check:  # it waits for the encoder
            fast_paths = replace(fast_paths, at_once=True)
        resolved = resolve_model(**source | {"fast_paths": fast_paths})
        if self_check:
            _self_check(resolved)
        return cls(
            resolved,
            links,
            Caches.of(fast_paths),
            _loaded_with={**source, "links": links},
        )

    def matching(
        self,
        backend: str,
        *,
        model_id: str | None = None,
        engine_settings: EngineSettings | None = None,
        accept_version: str | None = None,
    ) -> Normalizer:
        """The same model for other workers, in a fleet of several engines or versions.

        `normalize_with` answers a request for both. Images are read once. The prompt is rendered
        again only if it may differ: for another engine, for settings that change prompts, and for
        pictures that only one of the engines turns upright.

        Args:
            backend: the engine whose behaviour is matched, such as ``vllm==0.28``.
            model_id: the engine's model string; None for the one in the settings, or else the one
                of this normalizer.
            engine_settings: the options with which the engine was started; None for its defaults.
            accept_version: as for `from_pretrained`.

        Raises:
            ModelError: as for `from_pretrained`.
        """
        from mmroute.model.resolve import with_same_prompts  # jinja2, pydantic

        changed = {
            "backend": backend, "model_id": model_id, "engine_settings": engine_settings,
            "accept_version": accept_version,
        }  # fmt: skip
        source = {
            "model": self.model.name,
            "revision": self.model.commit,
            "links": self.links,
            **(self._loaded_with or {}),
            **changed,
        }
        other = with_same_prompts(self.model, backend, model_id, engine_settings, accept_version)
        if other is None:
            return _load(source)
        return replace(self, model=other, _loaded_with=source)  # `caches`: the same prompts

    def normalize(self, **fields: Unpack[RequestFields]) -> Routing:
        """The token IDs of one request. No value from a client makes it raise an error.

        Args:
            **fields: the fields of a `Request`, whose help says more about each. The prompt is
                exactly one of ``messages: Sequence[Mapping]``, ``prompt: str`` and
                ``prompt_token_ids: Iterable[int]``. The items beside it are
                ``images: Sequence[ImageSize | ImageFile]``,
                ``videos: Sequence[VideoSize | VideoFile]``, ``audios: Sequence[AudioLength]``
                and, for SGLang, ``mm_hashes: Sequence[str | None]``. The options are
                ``model: str``, ``add_special_tokens: bool = False``,
                ``add_generation_prompt: bool = True``, ``continue_final_message: bool = False``,
                ``chat_template_kwargs: Mapping``,
                ``tools: Sequence[Mapping]``, ``reasoning_effort: str``,
                ``documents: Sequence[Mapping]``, ``mm_processor_kwargs: Mapping``,
                ``media_io_kwargs: Mapping``, ``truncate_prompt_tokens: int``,
                ``cache_salt: str``, ``reads_cache: bool = True``, ``lora: Lora`` and
                ``api_fields: Mapping``.

        Raises:
            TypeError: there is no such field.

        >>> from mmroute import ImageSize
        >>> normalizer = Normalizer.from_pretrained("pixtral-12b-2409")
        >>> routing = normalizer.normalize(
        ...     messages=[{"role": "user", "content": [{"type": "image"}]}],
        ...     images=[ImageSize(32, 16)],
        ... )
        >>> routing.token_ids.tolist()
        [1, 3, 10, 10, 13, 4]
        """
        return self.answer(Request.of(fields))

    def answer(self, request: Request) -> Routing:
        """The token IDs of one request; see `normalize`."""
        return answer(
            self.model,
            request,
            links=self.links,
            caches=self.caches,
            watch=self.watch if self.watch is not None and self.watch.runs else None,
        )

    def normalize_with(self, *others: Normalizer, **fields: Unpack[RequestFields]) -> list[Routing]:
        """The answers to one request for these workers and for others of the same model.

        Images are read once, and the prompt is made once for all workers with the same prompts.

        Args:
            *others: normalizers from `matching`.
            **fields: the fields of a `Request`, as for `normalize`.

        Returns:
            The routing for these workers, and then one for each of the others.

        >>> normalizer = Normalizer.from_pretrained("pixtral-12b-2409")
        >>> new, old = normalizer.normalize_with(normalizer.matching("vllm==0.28"), prompt="Hi")
        >>> new.unexpanded_token_ids is old.unexpanded_token_ids
        True
        """
        return self.answer_with(others, Request.of(fields))

    def answer_with(self, others: Iterable[Normalizer], request: Request) -> list[Routing]:
        """The answers to one request; see `normalize_with`."""
        workers = (self, *others)
        return answer_for(((each.model, each.links, each.caches) for each in workers), request)

    def normalize_many(
        self, requests: Iterable[Mapping[str, Any]], *, threads: int | None = None
    ) -> Iterator[Routing]:
        """The answers to many requests, in their order, while the requests are read.

        Args:
            requests: the arguments of `normalize`, by name. With more than one thread some
                hundreds of requests are read before the first answer is yielded.
            threads: the number of threads. None is one for each core if Python has no global
                interpreter lock, and one otherwise. With that lock, give each core a process with
                a normalizer of its own, and a share of the requests.

        Raises:
            ValueError: `threads` is below 1.

        >>> normalizer = Normalizer.from_pretrained("pixtral-12b-2409")
        >>> all(routing.exact for routing in normalizer.normalize_many([{"prompt": "Hi"}]))
        True
        """
        return normalize_many(self.normalize, requests, threads)

    def stats(self) -> Stats:
        """The encoder in use, and the counters of the caches since the model was loaded.

        It waits until the encoder is chosen, which may take longer than `from_pretrained`.
        """
        return Stats(
            self.model.tokenizer.encoder_stats(),
            *(None if cache is None else cache.stats() for cache in self.caches),
        )


def _self_check(model: ResolvedModel) -> None:
    from mmroute.health.self_check import check_model  # rarely needed

    report = check_model(model)
    for warning in report.warnings:
        warnings.warn(warning, stacklevel=3)
    if not report.healthy:
        raise ModelError(Reason.SELF_CHECK_FAILED, report.failures)


def _load(loaded_with: Mapping[str, Any]) -> Normalizer:
    loaded: Normalizer = Normalizer.from_pretrained(**loaded_with)
    return loaded
