"""Builds the stand-in for libamd_smi.so that AMD's real Python binding loads."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "fixtures" / "amdsmistub.c"


def build(folder: Path) -> Path:
    """A folder with a libamd_smi.so in it. Skips the test where the compiler or the binding isn't installed."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc isn't installed, so the simulated amdsmi library can't be built")
    spec = importlib.util.find_spec("amdsmi")
    if spec is None or spec.origin is None:
        pytest.skip("the Python package amdsmi isn't installed: pip install -r requirements-dev.txt")
    wrapper = Path(spec.origin).with_name("amdsmi_wrapper.py").read_text(encoding="utf-8")
    # The binding looks up every function while it is imported; what the stub has takes precedence over these.
    names = sorted(set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper)))
    assert len(names) > 100
    rest = folder / "rest.c"
    rest.write_text("".join(f"__attribute__((weak)) int {name}(void) {{ return 2; }}\n" for name in names))
    library = folder / "libamd_smi.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", str(library), str(SOURCE), str(rest)], check=True)
    return folder
