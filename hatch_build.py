"""Compiles `_producer_runs.c` into the wheel, or beside its source for an editable install.

The kernel is optional: without a compiler, without Python's headers, on another processor than x86-64 or with
SKYLOG_PURE=1, skylog is installed without it and does the same in Python.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/skylog/broker")
NAME = "_producer_runs"


def compile_kernel(root: Path, target: Path, *options: str) -> str | None:
    """Compile the kernel to `target`. Return why that was not possible, None if it was."""
    if os.environ.get("SKYLOG_PURE", "") not in ("", "0"):
        return "SKYLOG_PURE is set"
    if platform.machine() not in ("x86_64", "AMD64") or sys.platform == "win32":
        return f"it is not for {platform.machine()} on {sys.platform}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    include = sysconfig.get_paths()["include"]
    linking = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    source = root / FOLDER / f"{NAME}.c"
    command = [*compiler, "-O2", "-shared", "-fPIC", f"-I{include}", *options, str(source), "-o", str(target), *linking]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no C compiler: {error}"
    return None if done.returncode == 0 else f"{shlex.join(compiler)} failed: {done.stderr.strip()[-1000:]}"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg,misc,unused-ignore]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        built = root / FOLDER / (NAME + (sysconfig.get_config_var("EXT_SUFFIX") or ".so"))
        built.unlink(missing_ok=True)
        reason = compile_kernel(root, built)
        if reason is not None:
            self.app.display_warning(f"skylog is installed without its compiled kernel, in pure Python: {reason}")
            return
        if version != "editable":
            build_data["force_include"][str(built)] = f"skylog/broker/{built.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
