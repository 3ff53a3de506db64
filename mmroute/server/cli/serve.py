"""``mmroute serve``: the render and tokenize endpoints of vLLM, without pixels."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mmroute.cli.arguments import EVENT_ENDPOINTS, Commands, add_command, image_links, require_extra
from mmroute.cli.engine_options import adopted_backend, ask_running
from mmroute.cli.output import EXIT_FAILURE, failed, say
from mmroute.engine import EngineSettings
from mmroute.engines.vllm.settings import as_vllm
from mmroute.reuse.fast_paths import FastPaths
from mmroute.server.cli.serve_config import configured, misspelt
from mmroute.server.cli.serve_options import serve_arguments

if TYPE_CHECKING:
    from mmroute.server.front.listening import Listen
    from mmroute.server.loading import ModelSource
    from mmroute.server.settings import ServerSettings

_LOG: Final = logging.getLogger(__name__)
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
    from mmroute.server.run import check, serve  # an extra, and slow to import

    try:
        doubtful = misspelt(arguments.parser, os.environ)
        arguments = configured(arguments.parser, arguments.words[1:], os.environ)
        if arguments.events:
            require_extra("events", "zmq")
        if arguments.otlp_traces_endpoint:
            require_extra("otel", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
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
            check(sources, settings)
            for message in doubtful:
                say(f"warning: {message}")
            say("the options are well-formed")
            return 0
        configure(arguments.log_level)
        for message in doubtful:
            _LOG.warning(message)
        failure = serve(sources, settings, listen, fast_paths)
    except ValueError as error:
        return failed(arguments, error)
    return 0 if failure is None else failed(arguments, failure, EXIT_FAILURE)


def _sources(arguments: argparse.Namespace) -> list[ModelSource]:
    from mmroute.server.loading import ModelSource  # an extra

    if not arguments.models:
        raise ValueError("no MODEL is given")
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
        source = ModelSource(model, names, model_id, arguments.revision, backend, settings, events)
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
    from mmroute.server.settings import (  # an extra
        AccessLog,
        AnswerFields,
        InexactPolicy,
        ServerSettings,
    )

    policy = arguments.inexact or ("fallback" if arguments.fallback_url else "error")
    names = {field.name for field in dataclasses.fields(ServerSettings)}
    fields = {name: value for name, value in vars(arguments).items() if name in names}
    return ServerSettings(**fields | {
        "inexact": InexactPolicy(policy),
        "fields": AnswerFields(arguments.fields),
        "tokenizer_info": arguments.enable_tokenizer_info_endpoint,
        "request_id_headers": arguments.enable_request_id_headers,
        "api_keys": tuple(arguments.api_key),
        "links": image_links(arguments),
        "access_log": AccessLog(arguments.access_log),
    })  # fmt: skip


def _listen(arguments: argparse.Namespace) -> Listen:
    from mmroute.server.front.listening import ConnectionLimits, Listen  # an extra

    return Listen(
        host=arguments.host,
        port=arguments.port,
        uds=arguments.uds,
        reuse_port=arguments.reuse_port,
        own_port=arguments.own_port,
        drain=arguments.drain_seconds,
        grace=arguments.grace_seconds,
        limits=ConnectionLimits(
            connections=arguments.max_connections,
            head_seconds=arguments.head_timeout,
            write_seconds=arguments.write_timeout,
        ),
    )
