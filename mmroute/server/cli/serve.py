"""``mmroute serve``: the render and tokenize endpoints of vLLM, without pixels."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mmroute.cli.arguments import EVENT_ENDPOINTS, Commands, add_command, image_links, require_extra
from mmroute.cli.engine_options import adopted_backend, ask_running
from mmroute.cli.output import EXIT_FAILURE, failed, say
from mmroute.engine import EngineSettings
from mmroute.engines.vllm.settings import as_vllm
from mmroute.reuse.fast_paths import FastPaths
from mmroute.server.cli.serve_config import configured
from mmroute.server.cli.serve_options import serve_arguments
from mmroute.server.front.listening import ConnectionLimits, Listen
from mmroute.server.options import chosen
from mmroute.server.settings import InexactPolicy, ServerSettings

if TYPE_CHECKING:
    from mmroute.server.loading import ModelSource

_EPILOG = """\
A MODEL is a directory, a hub name, pixtral-12b-2409, or grpc://WORKER:PORT (several with commas),
and is served by that name; NAME=MODEL serves it by another one, NAME,ALIAS=MODEL by several. The
first one answers requests that name no model.

  mmroute serve pixtral-12b-2409 --port 8000
  mmroute serve qwen=/models/qwen2.5-vl-3b llava=/models/llava-1.5-7b --uds /run/mmroute.sock

`mmroute docs server` has the routes, what a request without an exact answer gets, and the metrics.
Every option is also read from the environment (--max-body-bytes: MMROUTE_MAX_BODY_BYTES) and from
a file.

exit status: 0 stopped by SIGTERM; 1 a model could not be loaded, or the address is in use; 2 bad
usage; 130 interrupted (SIGINT)
"""


def add_serve(commands: Commands) -> None:
    """Add the command."""
    serve = add_command(
        commands,
        "serve",
        "answer vLLM's /tokenize and /render requests over HTTP, without pixels",
        _serve,
        epilog=_EPILOG,
    )
    serve_arguments(serve)


def _serve(arguments: argparse.Namespace) -> int:
    require_extra("serve", "httptools", "orjson", "prometheus_client", "uvicorn")
    from mmroute.server.logs import configure
    from mmroute.server.models import Models
    from mmroute.server.run import serve  # an extra, and slow to import
    from mmroute.server.service import Service

    try:
        arguments = configured(arguments.parser, arguments.words[1:], os.environ)
        if arguments.events:
            require_extra("events", "zmq")
        sources = _sources(arguments)
        fast_paths = FastPaths(
            encoder=arguments.encoder,
            text_cache_bytes=arguments.text_cache_mib << 20,
            hash_cache_bytes=arguments.hash_cache_mib << 20,
            chat_cache_bytes=arguments.chat_cache_mib << 20,
            image_cache_bytes=arguments.image_cache_mib << 20,
        )
        settings, listen = _settings(arguments), _listen(arguments)
        if arguments.check_config:
            Service(Models(sources, links=settings.links), settings)
            say("the options are well-formed")
            return 0
        configure(arguments.log_level)
        failure = serve(sources, settings, listen, fast_paths)
    except ValueError as error:
        return failed(arguments, error)
    return 0 if failure is None else failed(arguments, failure, EXIT_FAILURE)


def _sources(arguments: argparse.Namespace) -> list[ModelSource]:
    from mmroute.server.loading import ModelSource  # an extra

    if not arguments.models:
        raise ValueError(
            "no MODEL is given: name one here, in MMROUTE_MODEL or under models: in FILE"
        )
    one = len(arguments.models) == 1
    if not one and (arguments.served_model_name or arguments.revision):
        raise ValueError(
            "--served-model-name and --revision are for one MODEL; serve several as NAME=MODEL"
        )
    sources = []
    for argument in arguments.models:
        model, names = _named(argument)
        names = tuple(arguments.served_model_name) or names
        own = functools.partial(_for_model, names, one=one)
        backend, engine_args = arguments.backend, own(arguments.engine_args) or ""
        engine = own(arguments.engine)
        if engine is not None and not arguments.check_config:
            running, engine_args = ask_running(
                engine, arguments.engine_api_key, engine_args, own(arguments.engine_config)
            )
            backend = adopted_backend(running, backend)
        settings = EngineSettings.from_args(engine_args, config=own(arguments.engine_config))
        if arguments.hash_seed is not None:
            settings = dataclasses.replace(as_vllm(settings), hash_seed=arguments.hash_seed)
        if one and settings.served_names and names == (argument,):
            names = settings.served_names
        model_id, events = own(arguments.model_id), own(arguments.events)
        if events is not None and not events.startswith(EVENT_ENDPOINTS):
            raise ValueError(f"--events must be tcp://HOST:PORT or ipc://PATH, found {events}")
        source = ModelSource(
            model, names, model_id, arguments.revision, backend, settings, events,
            arguments.accept_version, arguments.act_on_differences,
        )  # fmt: skip
        sources.append(source)
    named = {name for source in sources for name in source.names}
    engine_options = (
        *arguments.engine_args, *arguments.engine_config, *arguments.engine, *arguments.events
    )  # fmt: skip
    for text in arguments.model_id if one else (*arguments.model_id, *engine_options):
        name, equals, _ = text.partition("=")
        if name not in named and not (one and not equals):
            raise ValueError(
                "--model-id, --engine, --engine-args, --engine-config and --events must be of the "
                f"form NAME=… where there are several models, with the name of one; found {text}"
            )
    return sources


def _named(argument: str) -> tuple[str, tuple[str, ...]]:
    """The model in ``NAME,ALIAS=MODEL``, and its names."""
    names, equals, model = argument.partition("=")
    if not equals or Path(argument).is_dir():
        return argument, (argument,)
    listed = tuple(name for name in names.split(",") if name)
    if not listed or not model:
        raise ValueError(f"{argument} must be of the form NAME=MODEL")
    return model, listed


def _for_model(names: Sequence[str], options: Sequence[str], *, one: bool) -> str | None:
    """The option's value for the model with these names; the last one if there are several."""
    chosen = None
    for text in options:
        name, equals, value = text.partition("=")
        if equals and name in names:
            chosen = value
        elif one:
            chosen = text
    return chosen


def _settings(arguments: argparse.Namespace) -> ServerSettings:
    policy = arguments.inexact or ("fallback" if arguments.fallback_url else "error")
    return ServerSettings(
        inexact=InexactPolicy(policy),
        links=image_links(arguments),
        **chosen(ServerSettings, arguments),
    )


def _listen(arguments: argparse.Namespace) -> Listen:
    limits = ConnectionLimits(**chosen(ConnectionLimits, arguments))
    return Listen(limits=limits, **chosen(Listen, arguments))
