"""The options of ``mmroute serve``."""

from __future__ import annotations

import argparse

from mmroute.cli.arguments import encoder_argument, link_arguments
from mmroute.cli.engine_options import accept_version_argument
from mmroute.engine import DEFAULT
from mmroute.server.front.listening import ConnectionLimits, Listen
from mmroute.server.options import add_options
from mmroute.server.settings import InexactPolicy, ServerSettings


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options, in the groups that ``--help`` shows."""
    _model_options(parser)
    names = ("where it listens", "what it answers", "limits")
    groups = {name: parser.add_argument_group(name) for name in names}
    _, answers, limits = groups.values()
    answers.add_argument(
        "--inexact", choices=[policy.value for policy in InexactPolicy],
        help="a request without an exact answer gets an error with the reason, or the answer of "
        "--fallback-url (default: fallback if that is given, else error)",
    )  # fmt: skip
    for settings in (Listen, ServerSettings, ConnectionLimits):
        add_options(settings, groups)
    link_arguments(answers)
    limits.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info",
        help="the least level of a log line (default: %(default)s)",
    )  # fmt: skip


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
    engines = parser.add_argument_group("the engines that are matched")
    engines.add_argument(
        "--backend", default=DEFAULT, help="engine to match (default: %(default)s)"
    )
    accept_version_argument(engines)
    engines.add_argument(
        "--model-id",
        metavar="[NAME=]ID",
        action="append",
        default=[],
        help="the engine's model string, which image identities cover; of the model served as "
        "NAME, or of the one MODEL (default: that of --engine-args, else MODEL)",
    )
    engines.add_argument("--revision", help="hub branch, tag or commit of the one MODEL")
    engines.add_argument(
        "--engine-args", metavar="[NAME=]ARGS", action="append", default=[],
        help="the command line of the engine that is matched, or a part of it, in one argument, "
        "such as 'vllm serve ID --max-num-batched-tokens 8192'; of the model served as NAME, or of "
        "the one MODEL",
    )  # fmt: skip
    engines.add_argument(
        "--engine-config", metavar="[NAME=]FILE", action="append", default=[],
        help="the engine's configuration file (vllm serve --config); --engine-args take precedence",
    )  # fmt: skip
    engines.add_argument(
        "--engine", metavar="[NAME=]URL", action="append", default=[],
        help="ask this engine for its options, and adopt them; --engine-args take precedence",
    )  # fmt: skip
    engines.add_argument(
        "--events", metavar="[NAME=]ENDPOINT", action="append", default=[],
        help="the KV events of one of these engines, tcp://HOST:PORT (needs pip install "
        "'.[events]'): the first of them tells the block size, where --engine-args and "
        "--engine do not, and all of them are compared with the answers",
    )  # fmt: skip
    parser.add_argument(
        "--act-on-differences", action="store_true",
        help="answer engine_differs while the events of --events contradict the answers (default: "
        "only tell of it, in the log, /metrics and /readyz)",
    )  # fmt: skip
    engines.add_argument("--engine-api-key", metavar="KEY", help="the API key of these engines")
    caches = parser.add_argument_group("encoder and caches")
    encoder_argument(caches)
    for of, whose in (("text", "encoded prompts"), ("hash", "block hashes"), ("chat", "chats")):
        caches.add_argument(
            f"--{of}-cache-mib", metavar="N", type=int, default=64,
            help=f"MiB of each model's cache of {whose}; 0: no cache (default: %(default)s)",
        )  # fmt: skip
    caches.add_argument(
        "--image-cache-mib", metavar="N", type=int, default=64,
        help="MiB of the cache of images in data URLs, for all models (default: %(default)s)",
    )  # fmt: skip
