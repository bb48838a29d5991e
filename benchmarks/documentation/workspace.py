"""A folder for a page's commands: it looks like the repository and contains all that they write."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 600.0

_ENTRIES = (
    "hardware",
    "generators",
    "reports",
    "hwcompat",
    "templates",
    "examples",
    "test",
    "benchmarks",
    "run_test_generation.py",
    "hardware_compatibility_reporter.py",
    "requirements.txt",
    "Makefile",
)


class Workspace:
    """Runs the commands of one page in one folder and one environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _ENTRIES:
            (folder / name).symlink_to(ROOT / name)
        scripts = _install(folder / ".venv")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HWCOMPAT_", "PYTEST_"))}
        self.environment = {
            **kept,
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "HWCOMPAT_CACHE": os.environ.get("HWCOMPAT_CACHE") or str(folder / ".cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, command: str) -> tuple[int, tuple[str, ...]]:
        """Run a shell command; return its exit code, and the lines of standard output and then of standard error.

        Progress and notes are omitted."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        errors = [line for line in done.stderr.splitlines() if line.startswith(("error: ", "Run it: "))]
        lines = [*done.stdout.strip("\n").splitlines(), *errors]
        return done.returncode, tuple(self._plain(line).rstrip() for line in lines)

    def run_python(self, script: str) -> tuple[int, tuple[str, ...]]:
        """Run a Python script in the same way; of a failing one return the end of its traceback."""
        done = subprocess.run(
            ["python", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        lines = done.stderr.splitlines()[-1:] if done.returncode else []
        return done.returncode, (*done.stdout.splitlines(), *lines)

    def _plain(self, line: str) -> str:
        """Return a line without paths of this machine."""
        for folder, word in ((self.folder, "."), (ROOT, "."), (Path.home(), "~")):
            line = line.replace(f"{folder}{os.sep}", "" if word == "." else f"{word}/").replace(str(folder), word)
        return line


def _install(folder: Path) -> Path:
    """Make an environment in which the program is installed as by `pip install -e .`; return its scripts."""
    venv.create(folder, symlinks=True)
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    (packages / "checkout.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n", encoding="utf-8")
    program = folder / "bin" / "hwcompat"
    start = "import sys\nfrom hwcompat.cli.main_program import main\nsys.exit(main())\n"
    program.write_text(f"#!{folder}/bin/python\n{start}", encoding="utf-8")
    program.chmod(0o755)
    return program.parent
