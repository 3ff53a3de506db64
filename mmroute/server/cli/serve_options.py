"""The options of ``mmroute serve``."""

from __future__ import annotations

import argparse

from mmroute.cli.arguments import encoder_argument, link_arguments, port
from mmroute.engine import DEFAULT


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options, in the groups that ``--help`` shows."""
    _model_options(parser)
    _listen_options(parser)
    _answer_options(parser)
    _limit_options(parser)


def _model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="*", help="[NAME[,ALIAS...]=]MODEL")
    parser.add_argument(
        "--config", metavar="FILE",
        help="a YAML file of options, such as `max-body-bytes: 1000000`; `models` is a list",
    )  # fmt: skip
    parser.add_argument(
        "--check-config", action="store_true",
        help="check the options and exit; no model is loaded",
    )  # fmt: skip
    parser.add_argument(
        "--served-model-name", metavar="NAME", nargs="+", default=[], help="names of the one MODEL"
    )
    parser.add_argument("--backend", default=DEFAULT, help="engine to match (default: %(default)s)")
    parser.add_argument(
        "--model-id",
        metavar="[NAME=]ID",
        action="append",
        default=[],
        help="the engine's model string, which image identities cover; of the model served as "
        "NAME, or of the one MODEL (default: that of --engine-args, else MODEL)",
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
        help="the engine's configuration file (vllm serve --config); --engine-args take precedence",
    )  # fmt: skip
    parser.add_argument(
        "--engine", metavar="[NAME=]URL", action="append", default=[],
        help="ask this running vLLM for its options, and adopt them; --engine-args take precedence",
    )  # fmt: skip
    parser.add_argument(
        "--events", metavar="[NAME=]ENDPOINT", action="append", default=[],
        help="the KV events of one of these engines, tcp://HOST:PORT (needs pip install "
        "'.[events]'): the first of them tells the block size, where --engine-args and "
        "--engine do not",
    )  # fmt: skip
    parser.add_argument("--engine-api-key", metavar="KEY", help="the API key of these engines")
    encoder_argument(parser)
    for option, text in (
        ("--text-cache-mib", "size of each model's cache of encoded prompts in MiB; 0: no cache"),
        ("--hash-cache-mib", "size of each model's cache of block hashes, likewise"),
        ("--chat-cache-mib", "size of each model's cache of rendered chats, likewise"),
        (
            "--image-cache-mib",
            "size of the cache of images in data URLs, for all models, in MiB; 0: no cache",
        ),
    ):
        parser.add_argument(
            option, metavar="N", type=int, default=64, help=f"{text} (default: %(default)s)"
        )


def _listen_options(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where it listens")
    where.add_argument("--host", default="127.0.0.1", help="the address (default: %(default)s)")
    where.add_argument("--port", type=port, default=8000, help="0: any (default: %(default)s)")
    where.add_argument("--uds", metavar="PATH", help="a Unix socket, in place of host and port")
    where.add_argument(
        "--reuse-port", action="store_true",
        help="let other servers listen at the port too; the system shares connections out",
    )  # fmt: skip
    where.add_argument(
        "--own-port", metavar="PORT", type=port,
        help="listen at this port too, for this server's own /metrics and /admin beside "
        "--reuse-port",
    )  # fmt: skip
    where.add_argument("--processes", type=_no_processes, help=argparse.SUPPRESS)
    where.add_argument(
        "--api-key", metavar="KEY", action="append", default=[],
        help="a key that requests to /v1 must have, as in vLLM; other routes need none "
        "(repeatable)",
    )  # fmt: skip
    where.add_argument(
        "--admin-key", metavar="KEY",
        help="the key for /admin/models, where models are added and removed (default: there are "
        "no such routes)",
    )  # fmt: skip
    where.add_argument(
        "--drain-seconds", metavar="S", type=float, default=5.0,
        help="the seconds from SIGTERM until listening ends (default: %(default)s)",
    )  # fmt: skip
    where.add_argument(
        "--grace-seconds", metavar="S", type=float, default=30.0,
        help="the seconds that running requests may still take then (default: %(default)s)",
    )  # fmt: skip


def _no_processes(_: str) -> int:
    raise argparse.ArgumentTypeError(
        "one process is one server: start several with --reuse-port (`mmroute docs deploy`)"
    )


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
    answers.add_argument(
        "--fallback-api-key", metavar="KEY", help="the API key of the fallback server"
    )
    answers.add_argument(
        "--fallback-timeout", metavar="S", type=float, default=30.0,
        help="the seconds for an answer of the fallback server (default: %(default)s)",
    )  # fmt: skip
    answers.add_argument(
        "--fields", choices=["all", "tokens"], default="all",
        help="the fields of rendered prompts: those of vLLM, or only token IDs, features and "
        "hashes, as with ?fields=tokens (default: %(default)s)",
    )  # fmt: skip
    answers.add_argument(
        "--strict", action="store_true",
        help="refuse prompt together with messages; end with exit status 1 if the fallback "
        "is an engine with other rules, or of an unknown version",
    )  # fmt: skip
    answers.add_argument(
        "--trust-request-mm-kwargs",
        action="store_true",
        help="the same as vLLM's option, for all models (default: as in each one's --engine-args)",
    )
    answers.add_argument(
        "--enable-tokenizer-info-endpoint",
        action="store_true",
        help="serve /tokenizer_info, as vLLM's option does",
    )
    answers.add_argument(
        "--enable-request-id-headers", action="store_true", help="answer with X-Request-Id"
    )
    answers.add_argument(
        "--hash-seed", metavar="SEED", help="the engine's PYTHONHASHSEED, for ?block_size="
    )
    link_arguments(answers)


def _limit_options(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("limits")
    for option, kind, default, text in (
        ("--max-body-bytes", int, 64 << 20, "bytes of one request"),
        ("--max-total-body-bytes", int, 512 << 20, "bytes of all requests at a time"),
        ("--max-text-bytes", int, 16 << 20, "bytes of one request, without its data URLs"),
        ("--max-structure", int, 1 << 20, "commas, colons and (four each) brackets of one request"),
        ("--max-concurrency", int, 256, "requests at a time; more get a 503"),
        ("--request-timeout", float, 30.0, "seconds for one request"),
        ("--max-connections", int, 768, "connections at a time; more get a 503"),
        ("--head-timeout", float, 10.0, "seconds from a connection to the end of a request's head"),
        ("--write-timeout", float, 30.0, "seconds in which a client must read an answer"),
        ("--worker-bytes", int, 16 << 10, "larger requests get a thread; a picture counts as 512"),
        ("--workers", int, 4, "threads for larger requests"),
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
        help="the least level of a log line (default: %(default)s)",
    )  # fmt: skip
