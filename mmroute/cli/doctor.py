"""``mmroute doctor``: checks a model as it is installed here."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
from functools import partial
from pathlib import Path
from typing import Final

from mmroute.cli.arguments import Commands, add_command
from mmroute.cli.engine_options import engine_settings, model_arguments
from mmroute.cli.output import print_table
from mmroute.engine import EngineSettings, find_engine
from mmroute.engines.running import RunningEngine
from mmroute.health.self_check import Check, HealthReport, load_and_check
from mmroute.reuse.fast_paths import FastPaths

_EXIT_UNHEALTHY: Final = 1
_VECTORS: Final = "mmroute.lab.parity.oracles.vectors"  # known by name, as commands are
_EPILOG = """\
exit status: 0 healthy; 1 not healthy; 2 bad usage. With --strict a model is not healthy either with
a warning, or where block hashes are guessed or missing.
"""


def add_doctor(commands: Commands) -> None:
    """Add the command."""
    doctor = add_command(
        commands,
        "doctor",
        "check a model as it is installed here: files, versions, special tokens, a few requests",
        _doctor,
        epilog=_EPILOG,
    )
    model_arguments(doctor)
    doctor.add_argument(
        "--vectors",
        metavar="FILE",
        type=Path,
        help="compare a few answers of this file of vectors as well (validate --write-vectors)",
    )
    doctor.add_argument(
        "--strict",
        action="store_true",
        help="a warning, and guessed or missing block hashes, are not healthy",
    )


def _doctor(arguments: argparse.Namespace) -> int:
    vectors, settings = arguments.vectors, engine_settings(arguments)
    further = []
    if vectors is not None:
        further = [partial(importlib.import_module(_VECTORS).check_recorded, path=vectors)]
    report = load_and_check(
        arguments.model,
        *further,
        backend=arguments.backend,
        model_id=arguments.model_id,
        revision=arguments.revision,
        fast_paths=FastPaths(at_once=True),
        engine_settings=settings,
        accept_version=arguments.accept_version,
    )
    if arguments.engine is not None and report.family is not None:
        report = _with_engine(report, arguments, settings)
    wrong = report.verdict(strict=arguments.strict)
    if arguments.json:
        print(json.dumps(report.as_json() | {"healthy": not wrong}, ensure_ascii=False))
    else:
        rows = [("CHECK", "", "DETAIL")]
        rows += [(c.name, "ok" if c.ok else "FAILED", c.detail) for c in report.checks]
        print_table(rows)
        for warning in report.warnings:
            print(f"warning: {warning}")
        for guess in report.guesses:
            print(f"hashes: {guess}")
        print(f"not healthy: {wrong}" if wrong else "healthy")
    return _EXIT_UNHEALTHY if wrong else 0


def _with_engine(
    report: HealthReport, arguments: argparse.Namespace, settings: EngineSettings
) -> HealthReport:
    """The report with the version of a running engine, and a warning if its rules differ."""
    running: RunningEngine = arguments.running
    check = Check("running_engine", ok=True, detail=str(running))
    warning = running.warning(find_engine(arguments.backend).under(settings))
    warnings = (*report.warnings, warning) if warning else report.warnings
    return dataclasses.replace(report, checks=(*report.checks, check), warnings=warnings)
