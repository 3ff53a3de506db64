"""Compiles the optional extensions. As a program: into this checkout, for work in it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from setuptools import Distribution, Extension

_ROOT: Final = Path(__file__).parent.parent
SOURCES: Final = {
    "mmroute.chat.native._messages": ("messages.c",),
    "mmroute.hashing.native._chain": ("chain.c", "sha256.h", "xxhash.h"),
    "mmroute.kv_events.native._holders": ("holders.c", "holders.h"),
}
"""By module, its source file and the files that this one includes, in the module's folder."""


def build_extensions(folder: Path, *modules: str) -> list[Path]:
    """Compile extensions for every Python from 3.11.

    Args:
        folder: the place of the results, each below it where its module is in the package.
        modules: names of `SOURCES`; none for all of them.

    Returns:
        The paths of the extensions.

    Raises:
        setuptools.errors.BaseError, setuptools.errors.CCompilerError: there is no compiler, or it
            fails.
    """
    extensions = [_extension(module) for module in modules or SOURCES]
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = str(folder)
    command.build_temp = tempfile.mkdtemp()
    command.ensure_finalized()
    command.run()
    return [Path(output) for output in command.get_outputs()]


def _extension(module: str) -> Extension:
    folder = _ROOT.joinpath(*module.split(".")[:-1])
    source, *included = (str(folder / name) for name in SOURCES[module])
    return Extension(
        module,
        [source],
        depends=included,
        include_dirs=[str(folder)],
        define_macros=[("Py_LIMITED_API", "0x030b0000")],
        extra_compile_args=[] if sys.platform == "win32" else ["-O3"],
        py_limited_api=True,
    )


if __name__ == "__main__":
    print(*build_extensions(_ROOT), sep="\n")  # the one thing this program tells
