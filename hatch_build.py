"""Adds the optional extensions of `tools/native_build.py` to a wheel.

Without a compiler the wheel is the pure one. MMROUTE_BUILD_EXTENSION=0 asks for that one, and =1
makes a failed build an error, as release wheels want it.
"""

from __future__ import annotations

import os
import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools.errors import BaseError, CCompilerError


class ExtensionHook(BuildHookInterface):  # type: ignore[misc]  # hatchling has no types here
    """Compiles the extensions, and names the wheel after the platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the wheel is put together."""
        wanted = os.environ.get("MMROUTE_BUILD_EXTENSION", "")
        no_limited_api = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
        if version == "editable" or wanted == "0" or no_limited_api:
            return
        build = runpy.run_path(str(Path(self.root) / "tools/native_build.py"))["build_extensions"]
        folder = Path(tempfile.mkdtemp())
        try:
            extensions = build(folder)
        except (BaseError, CCompilerError, OSError) as error:
            if wanted == "1":
                raise
            self.app.display_warning(f"mmroute is built without its compiled parts: {error}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["pure_python"] = False
        for extension in extensions:
            build_data["force_include"][str(extension)] = str(extension.relative_to(folder))
