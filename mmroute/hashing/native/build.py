"""Compiles `_chain`. As a program: into this folder, for work in a checkout."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Distribution, Extension

__all__ = ["build_extension"]

_HERE = Path(__file__).parent


def build_extension(folder: Path) -> Path:
    """The path of the extension, which is compiled into `folder` for every Python from 3.11.

    Raises:
        setuptools.errors.BaseError, setuptools.errors.CCompilerError: there is no compiler, or it
            fails.
    """
    extension = Extension(
        "_chain",
        [str(_HERE / "chain.c")],
        depends=[str(_HERE / "sha256.h"), str(_HERE / "xxhash.h")],
        include_dirs=[str(_HERE)],
        define_macros=[("Py_LIMITED_API", "0x030b0000")],
        extra_compile_args=[] if sys.platform == "win32" else ["-O3"],
        py_limited_api=True,
    )
    command = Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
    command.build_lib = str(folder)
    command.build_temp = str(folder / "objects")
    command.ensure_finalized()
    command.run()
    return Path(command.get_outputs()[0])


if __name__ == "__main__":
    print(build_extension(_HERE))  # noqa: T201  # the one thing this program tells
