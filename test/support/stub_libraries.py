"""Stand-ins for vendors' libraries, built from C, that the real Python bindings load in a process of its own.

Each calls itself simulated, and follows `SIM_…` variables: how many devices there are, what fails, which is lost.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "test" / "fixtures"


def python(code: str, **environment: str) -> Any:
    """What `code` prints as JSON, in a fresh process that sees only the given SIM_ variables."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SIM_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def nvml(folder: Path) -> Path:
    """`folder` with a libnvidia-ml.so.1 in it, for LD_LIBRARY_PATH."""
    _compile(folder / "libnvidia-ml.so.1", SOURCES / "nvmlstub.c")
    return folder


def level_zero(folder: Path) -> Path:
    """A libze_loader.so.1 in `folder`."""
    _origin("pyzes")
    return _compile(folder / "libze_loader.so.1", SOURCES / "levelzerostub.c")


def amdsmi(folder: Path) -> Path:
    """`folder` with a libamd_smi.so in it, for LD_LIBRARY_PATH."""
    wrapper = _origin("amdsmi").with_name("amdsmi_wrapper.py").read_text(encoding="utf-8")
    # The binding looks up every function while it is imported; what the stub has takes precedence over these.
    names = sorted(set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper)))
    assert len(names) > 100
    rest = folder / "rest.c"
    rest.write_text("".join(f"__attribute__((weak)) int {name}(void) {{ return 2; }}\n" for name in names))
    _compile(folder / "libamd_smi.so", SOURCES / "amdsmistub.c", rest)
    return folder


def _origin(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"the Python package {package} isn't installed: make setup")
    return Path(spec.origin)


def _compile(library: Path, *sources: Path) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip(f"gcc isn't installed, so a simulated {library.name} can't be built")
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", str(library), *map(str, sources)], check=True)
    return library
