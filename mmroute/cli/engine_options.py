"""The options that name the model and its engine, and what they load."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from mmroute.cli.output import say
from mmroute.engine import DEFAULT, EngineSettings, engine_names, find_engine
from mmroute.engines.running import RunningEngine
from mmroute.errors import ModelError, Reason, did_you_mean
from mmroute.model.garbage import not_searched
from mmroute.normalizer import Normalizer

MODEL_HELP = (
    "model directory, hub name (only configuration and tokenizer files are fetched), or "
    "pixtral-12b-2409, which needs no download"
)


def model_arguments(
    parser: argparse.ArgumentParser, *, several: bool = False, asks: bool = True
) -> None:
    """Add MODEL, and the options of its engine."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    engine_arguments(parser, several=several, asks=asks)


def engine_arguments(
    parser: argparse.ArgumentParser, *, several: bool = False, asks: bool = True
) -> None:
    """Add the options for the model's engine and its settings."""
    engine = parser.add_argument_group("the engine that is matched")
    backends = "; repeatable: each line is answered for every one, by its name" if several else ""
    engine.add_argument(
        "--backend",
        action="append" if several else "store",
        default=None if several else DEFAULT,
        help=f"engine to match, such as vllm==0.28 (default: {DEFAULT}){backends}",
    )
    accept_version_argument(engine)
    engine.add_argument(
        "--model-id",
        metavar="NAME",
        help="the engine's model string, which its image identities cover (default: that of "
        "--engine-args, else MODEL)",
    )
    engine.add_argument("--revision", help="hub branch, tag or commit")
    engine.add_argument(
        "--engine-args",
        metavar="ARGS",
        default="",
        help="the engine's own command line or a part of it, in one argument, such as "
        "'vllm serve NAME --max-num-batched-tokens 8192'; variables in front of it count",
    )
    engine.add_argument(
        "--engine-config",
        metavar="FILE",
        help="the engine's configuration file (vllm serve --config); --engine-args take precedence",
    )
    if not asks:
        return
    engine.add_argument(
        "--engine",
        metavar="URL",
        help="ask this engine for its options, and adopt them; --engine-args take precedence",
    )
    engine.add_argument("--api-key", help="the API key of the engine that is asked")


def accept_version_argument(parser: argparse._ActionsContainer) -> None:
    """Add the option that accepts an engine's version which nobody compared."""
    parser.add_argument(
        "--accept-version",
        metavar="VERSION",
        help="answer for this version of the engine, which nobody compared, by the rules of the "
        "nearest one (default: requests to an unknown version are inexact, unproved_version)",
    )


def adopt_engine(arguments: argparse.Namespace) -> None:
    """Adopt the settings of a running engine (`running`), below those of the arguments."""
    running, arguments.engine_args = ask_running(
        arguments.engine, arguments.api_key, arguments.engine_args, arguments.engine_config
    )
    arguments.running, backends = running, arguments.backend
    if isinstance(backends, list):
        arguments.backend = [adopted_backend(running, name) for name in backends]
    else:
        arguments.backend = adopted_backend(running, backends or DEFAULT)


def adopted_backend(running: RunningEngine, backend: str) -> str:
    """The backend that was given, or in place of the default the version that runs."""
    if backend != DEFAULT:
        warning = running.warning(find_engine(backend))
        if warning:
            say(f"warning: {warning}")
        return backend
    if running.profile is None and running.nearest:
        say(f"warning: {running}")
        return running.nearest
    if running.profile is None:
        nearest = running.engine if running.engine in engine_names() else DEFAULT
        raise ModelError(
            Reason.UNKNOWN_BACKEND,
            f"{running}. To be answered by the rules of another version all the same, name it: "
            f"--backend {find_engine(nearest).release.backend}",
        )
    return running.backend


def ask_running(
    url: str, api_key: str | None, engine_args: str, config: str | None
) -> tuple[RunningEngine, str]:
    """Ask an engine for its version and options; report those adopted and those not known."""
    from mmroute.engines.running import ask_engine
    from mmroute.net.remote import Remote
    from mmroute.net.transport import Transport  # loads httpcore

    try:
        remote = Remote(url, api_key)
    except ValueError as error:
        raise ModelError(Reason.INVALID_ENGINE_SETTING, f"--engine: {error}") from error
    with contextlib.closing(Transport(remote)) as transport:
        running = ask_engine(transport)
        say(f"{url} is {running}")
        if running.engine not in engine_names():
            return running, engine_args
        settings = type(find_engine(running.engine).settings)
        adopted = settings.adopted(transport, running.frontend, engine_args, config)
    if adopted is None:
        return running, engine_args
    say(f"adopted from it: {adopted.reported}")
    say(
        "neither reported by it nor given in --engine-args, so the engine's default is assumed: "
        f"{', '.join(adopted.assumed)}"
    )
    return running, adopted.line


def engine_settings(arguments: argparse.Namespace) -> EngineSettings:
    """The engine's settings, from the arguments."""
    line = arguments.engine_args
    try:
        settings = EngineSettings.from_args(line, config=arguments.engine_config)
    except ModelError as error:
        named = arguments.backend if isinstance(arguments.backend, str) else DEFAULT
        own = type(find_engine(named).settings)
        if own is type(find_engine(DEFAULT).settings) or own.is_started_by(line):
            raise
        hint = f"; begin the line with the command that starts {named}"
        raise ModelError(error.reason, f"{error}{hint}") from error
    if settings.without_effect:
        listed = ", ".join(settings.without_effect)
        say(f"without effect on token IDs and hashes: {listed}")
    for name in settings.without_effect:
        hint = did_you_mean(name, settings.deciding(), cutoff=0.85)
        if hint and not name.startswith("--"):
            say(f"warning: {name} is no variable that mmroute knows{hint}")
    return settings


@not_searched()
def load_normalizer(
    arguments: argparse.Namespace, settings: EngineSettings | None = None, **more: Any
) -> Normalizer:
    """Load the model that the arguments name."""
    options: dict[str, Any] = {
        "backend": arguments.backend,
        "model_id": arguments.model_id,
        "revision": arguments.revision,
        "accept_version": arguments.accept_version,
        "engine_settings": engine_settings(arguments) if settings is None else settings,
    }
    normalizer: Normalizer = Normalizer.from_pretrained(arguments.model, **options | more)
    return normalizer
