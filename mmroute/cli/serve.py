"""``mmroute serve``: the render and tokenize endpoints of vLLM, without pixels."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mmroute.cli.common import (
    DEFAULT_BACKEND,
    EXIT_FAILURE,
    Commands,
    add_command,
    ask_running,
    encoder_argument,
    failed,
    port,
)
from mmroute.cli.serve_config import configured
from mmroute.engines.settings import EngineSettings
from mmroute.fast_paths import FastPaths
from mmroute.net.links import ImageLinks

if TYPE_CHECKING:
    from mmroute.server.listening import Listen
    from mmroute.server.loading import ModelSource
    from mmroute.server.settings import ServerSettings

__all__ = ["add_serve"]

_NEEDED: Final = ("httptools", "orjson", "prometheus_client")
_EPILOG = """\
A MODEL is a directory, a hub name, pixtral-12b-2409, or grpc://WORKER:PORT (several with commas),
and is served by that name; NAME=MODEL serves it by another one, NAME,ALIAS=MODEL by several. The
first one answers requests that name no model.

  mmroute serve pixtral-12b-2409 --port 8000
  mmroute serve qwen=/models/qwen2.5-vl-3b llava=/models/llava-1.5-7b --uds /run/mmroute.sock

`mmroute docs server` has the routes, what a request without an exact answer gets, and the metrics.
Every option is also read from the environment (--max-body-bytes: MMROUTE_MAX_BODY_BYTES) and from
a file.

exit status: 0 told to stop (SIGTERM); 1 a model could not be loaded, or nothing to listen on; 2 bad
usage
"""


class _UsageError(Exception):
    """What was asked for cannot be; the message says why."""


def add_serve(commands: Commands) -> None:
    """Add the command."""
    serve = add_command(
        commands,
        "serve",
        "answer vLLM's /tokenize and /render requests over HTTP, without pixels",
        _serve,
        epilog=_EPILOG,
    )
    _model_options(serve)
    _listen_options(serve)
    _answer_options(serve)
    _limit_options(serve)


def _model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="*", help="[NAME[,ALIAS...]=]MODEL")
    parser.add_argument(
        "--config", metavar="FILE",
        help="options in YAML, as `max-body-bytes: 1000000`; `models` is a list there",
    )  # fmt: skip
    parser.add_argument(
        "--check-config", action="store_true",
        help="say what is wrong with the options, and load nothing",
    )  # fmt: skip
    parser.add_argument(
        "--served-model-name", metavar="NAME", nargs="+", default=[], help="names of the one MODEL"
    )
    parser.add_argument(
        "--backend", default=DEFAULT_BACKEND, help="engine to match (default: %(default)s)"
    )
    parser.add_argument(
        "--model-id",
        metavar="[NAME=]ID",
        action="append",
        default=[],
        help="the engine's own model string, which image hashes cover; of the model served as "
        "NAME, or of the one MODEL (default: MODEL as given)",
    )
    parser.add_argument("--revision", help="hub branch, tag or commit of the one MODEL")
    parser.add_argument(
        "--engine-args", metavar="[NAME=]ARGS", action="append", default=[],
        help="the command line of the engine that is matched, or a part of it, in one argument, "
        "such as 'vllm serve ID --max-num-batched-tokens 8192'; of the model served as NAME, or of "
        "the one MODEL",
    )  # fmt: skip
    parser.add_argument(
        "--engine-config", metavar="[NAME=]FILE", action="append", default=[],
        help="its configuration file (vllm serve --config); --engine-args win",
    )  # fmt: skip
    parser.add_argument(
        "--engine", metavar="[NAME=]URL", action="append", default=[],
        help="ask this running vLLM how it was started, and take what it tells; --engine-args win",
    )  # fmt: skip
    parser.add_argument("--engine-api-key", metavar="KEY", help="of the engines that are asked")
    encoder_argument(parser)
    parser.add_argument(
        "--text-cache-mib", metavar="N", type=int, default=64,
        help="memory for the beginnings of prompts, of each model; 0: none (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--hash-cache-mib", metavar="N", type=int, default=64,
        help="the same for block hashes (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--chat-cache-mib", metavar="N", type=int, default=64,
        help="the same for the messages of long chats (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--shadow-rate", metavar="RATE", type=float, default=0.0,
        help="has no effect; accepted for one more release",
    )  # fmt: skip


def _listen_options(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where it listens")
    where.add_argument("--host", default="127.0.0.1", help="(default: %(default)s)")
    where.add_argument("--port", type=port, default=8000, help="(default: %(default)s)")
    where.add_argument("--uds", metavar="PATH", help="a Unix socket instead")
    where.add_argument(
        "--processes", metavar="N", type=int, default=1,
        help="that answer, on one port or socket; the models are loaded once (default: "
        "%(default)s)",
    )  # fmt: skip
    where.add_argument(
        "--api-key", metavar="KEY", action="append", default=[],
        help="wanted for /v1, as by vLLM; the other routes are open (repeatable)",
    )  # fmt: skip
    where.add_argument(
        "--admin-key", metavar="KEY",
        help="serve /admin/models, where models are added and removed, to who has this key "
        "(default: there are no such routes)",
    )  # fmt: skip
    where.add_argument(
        "--drain-seconds", metavar="S", type=float, default=5.0,
        help="after SIGTERM, before listening ends (default: %(default)s)",
    )  # fmt: skip
    where.add_argument(
        "--grace-seconds", metavar="S", type=float, default=30.0,
        help="for requests that still run then (default: %(default)s)",
    )  # fmt: skip


def _answer_options(parser: argparse.ArgumentParser) -> None:
    answers = parser.add_argument_group("what it answers")
    answers.add_argument(
        "--inexact", choices=["error", "fallback", "text-prefix"],
        help="a request without an exact answer gets an error with the reason, or the answer of "
        "--fallback-url, or (a chat whose images are the cause) the tokens before its first image "
        "(default: fallback if that is given, else error)",
    )  # fmt: skip
    answers.add_argument(
        "--fallback-url", metavar="URL", help="a real vLLM render: http://HOST:PORT"
    )
    answers.add_argument("--fallback-api-key", metavar="KEY", help="sent to it")
    answers.add_argument(
        "--fallback-timeout", metavar="S", type=float, default=30.0, help="(default: %(default)s)"
    )
    answers.add_argument(
        "--strict", action="store_true",
        help="refuse prompt together with messages, and tools that would need a parser; end with "
        "exit status 1 where the fallback is an engine of other rules, or of an unknown version",
    )  # fmt: skip
    answers.add_argument(
        "--trust-request-mm-kwargs", action="store_true", help="as vLLM's option of this name"
    )
    answers.add_argument(
        "--enable-tokenizer-info-endpoint", action="store_true", help="serve /tokenizer_info"
    )
    answers.add_argument(
        "--enable-request-id-headers", action="store_true", help="answer with X-Request-Id"
    )
    answers.add_argument(
        "--hash-seed", metavar="SEED", help="the engine's PYTHONHASHSEED, for ?block_size="
    )
    answers.add_argument(
        "--image-host", metavar="HOST", action="append", default=[],
        help="follow links to images on this host (repeatable; *.example.com; *); none otherwise",
    )  # fmt: skip
    answers.add_argument(
        "--image-network", metavar="NETWORK", action="append", default=[],
        help="connect to private addresses of this network as well",
    )  # fmt: skip


def _limit_options(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("limits")
    for option, kind, default, text in (
        ("--max-body-bytes", int, 64 << 20, "of one request"),
        ("--max-total-body-bytes", int, 512 << 20, "of all requests at a time"),
        ("--max-text-bytes", int, 16 << 20, "of one request, beside its data URLs"),
        ("--max-structure", int, 1 << 20, "commas, colons and brackets of one request"),
        ("--max-concurrency", int, 256, "requests at a time; more get a 503"),
        ("--request-timeout", float, 30.0, "seconds for one request"),
        ("--max-connections", int, 768, "at a time; more get a 503"),
        ("--head-timeout", float, 10.0, "seconds from a connection to the end of a head"),
        ("--write-timeout", float, 30.0, "seconds in which a client takes an answer"),
        (
            "--worker-bytes",
            int,
            16 << 10,
            "larger requests (in characters; a picture is 512) are answered in a thread",
        ),
        ("--workers", int, 4, "such threads"),
        ("--link-workers", int, 32, "threads that follow links; more such requests get a 503"),
    ):
        limits.add_argument(
            option, metavar="N", type=kind, default=default, help=f"{text} (default: %(default)s)"
        )
    limits.add_argument(
        "--access-log", choices=["all", "inexact", "none"], default="inexact",
        help="which requests get a log line (default: %(default)s)",
    )  # fmt: skip
    limits.add_argument(
        "--otlp-traces-endpoint", metavar="URL",
        help="send a span for each request to this OpenTelemetry collector, over HTTP "
        "(http://HOST:4318/v1/traces; needs the extra `otel`)",
    )  # fmt: skip
    limits.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info",
        help="(default: %(default)s)",
    )  # fmt: skip


def _serve(arguments: argparse.Namespace) -> int:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"mmroute: {', '.join(missing)} not installed; `mmroute serve` needs "
            "pip install 'mmroute[serve]'",
            file=sys.stderr,
        )
        return EXIT_FAILURE
    from mmroute.server.run import check, serve  # an extra, and slow to import

    try:
        arguments = configured(arguments.parser, arguments.given[1:], os.environ)
        sources = _sources(arguments)
        trusted = all(source.engine_settings.trust_request_mm_kwargs for source in sources)
        arguments.trust_request_mm_kwargs |= trusted
        fast_paths = FastPaths(
            encoder=arguments.encoder,
            text_cache_bytes=arguments.text_cache_mib << 20,
            hash_cache_bytes=arguments.hash_cache_mib << 20,
            chat_cache_bytes=arguments.chat_cache_mib << 20,
        )
        settings, listen = _settings(arguments), _listen(arguments)
        if arguments.check_config:
            check(sources, settings)
            print("mmroute: the options are well-formed", file=sys.stderr)
            return 0
        failure = serve(sources, settings, listen, fast_paths)
    except (ValueError, _UsageError) as error:
        return failed(arguments, error)
    except ModuleNotFoundError as error:  # the one that is imported only where it is asked for
        print(
            f"mmroute: {error.name} is not installed; --otlp-traces-endpoint needs "
            "pip install 'mmroute[otel]'",
            file=sys.stderr,
        )
        return EXIT_FAILURE
    if failure is not None:
        print(f"mmroute: {failure}", file=sys.stderr)
        return EXIT_FAILURE
    return 0


def _sources(arguments: argparse.Namespace) -> list[ModelSource]:
    from mmroute.server.loading import ModelSource  # an extra

    if not arguments.models:
        raise _UsageError("no MODEL is given")
    one = len(arguments.models) == 1
    if not one and (arguments.served_model_name or arguments.revision):
        raise _UsageError(
            "--served-model-name and --revision are for one MODEL; serve several as NAME=MODEL"
        )
    ids = _model_ids(arguments.model_id, one=one)
    sources = []
    for given in arguments.models:
        model, names = _named(given)
        names = tuple(arguments.served_model_name) or names
        known = [ids.pop(name) for name in (*names, "") if name in ids]
        backend = arguments.backend
        engine_args = _of_model(names, arguments.engine_args, one=one) or ""
        engine = _of_model(names, arguments.engine, one=one)
        if engine is not None and not arguments.check_config:
            key = arguments.engine_api_key
            backend, engine_args = ask_running(engine, key, backend, engine_args)
        settings = EngineSettings.from_args(
            engine_args, config=_of_model(names, arguments.engine_config, one=one)
        )
        if one and settings.served_names and names == (given,):
            names = settings.served_names
        sources.append(
            ModelSource(
                model,
                names,
                model_id=known[0] if known else None,
                revision=arguments.revision,
                backend=backend,
                engine_settings=settings,
            )
        )
    named = {name for source in sources for name in source.names}
    if not one:
        for text in (*arguments.engine_args, *arguments.engine_config, *arguments.engine):
            if text.partition("=")[0] not in named:
                raise _UsageError(
                    "--engine, --engine-args and --engine-config must be of the form NAME=… where "
                    f"there are several models, found {text}"
                )
    if ids:
        raise _UsageError(f"--model-id: no model is served as {', '.join(ids)}")
    return sources


def _named(given: str) -> tuple[str, tuple[str, ...]]:
    """The model in ``NAME,ALIAS=MODEL``, and its names."""
    names, equals, model = given.partition("=")
    if not equals or Path(given).is_dir():
        return given, (given,)
    listed = tuple(name for name in names.split(",") if name)
    if not listed or not model:
        raise _UsageError(f"{given} must be of the form NAME=MODEL")
    return model, listed


def _of_model(names: Sequence[str], given: Sequence[str], *, one: bool) -> str | None:
    """What was given for the model of these names, the last one of several."""
    found = None
    for text in given:
        name, equals, value = text.partition("=")
        if equals and name in names:
            found = value
        elif one:
            found = text
    return found


def _model_ids(given: Sequence[str], *, one: bool) -> dict[str, str]:
    if one and len(given) == 1 and "=" not in given[0]:
        return {"": given[0]}
    pairs = [text.partition("=") for text in given]
    if not all(name and equals and value for name, equals, value in pairs):
        raise _UsageError("--model-id must be of the form NAME=ID where there are several models")
    return {name: value for name, _, value in pairs}


def _settings(arguments: argparse.Namespace) -> ServerSettings:
    from mmroute.server.settings import (  # an extra
        AccessLog,
        InexactPolicy,
        ServerSettings,
    )

    policy = arguments.inexact or ("fallback" if arguments.fallback_url else "error")
    hosts, networks = tuple(arguments.image_host), tuple(arguments.image_network)
    if networks and not hosts:
        raise _UsageError("--image-network is for links, and no --image-host is allowed")
    same: Mapping[str, Any] = {
        name: getattr(arguments, name)
        for name in (
            "fallback_url", "fallback_timeout", "strict", "trust_request_mm_kwargs", "hash_seed",
            "max_body_bytes", "max_total_body_bytes", "max_concurrency", "request_timeout",
            "worker_bytes", "workers", "link_workers", "max_text_bytes", "max_structure",
            "otlp_traces_endpoint",
        )
    }  # fmt: skip
    return ServerSettings(
        **same,
        inexact=InexactPolicy(policy),
        fallback_api_key=arguments.fallback_api_key,
        tokenizer_info=arguments.enable_tokenizer_info_endpoint,
        request_id_headers=arguments.enable_request_id_headers,
        api_keys=tuple(arguments.api_key),
        admin_key=arguments.admin_key,
        links=ImageLinks(hosts=hosts, networks=networks) if hosts else None,
        access_log=AccessLog(arguments.access_log),
    )


def _listen(arguments: argparse.Namespace) -> Listen:
    from mmroute.server.listening import ConnectionLimits, Listen  # an extra

    return Listen(
        host=arguments.host,
        port=arguments.port,
        uds=arguments.uds,
        processes=arguments.processes,
        drain=arguments.drain_seconds,
        grace=arguments.grace_seconds,
        log_level=arguments.log_level,
        limits=ConnectionLimits(
            connections=arguments.max_connections,
            head_seconds=arguments.head_timeout,
            write_seconds=arguments.write_timeout,
        ),
    )
