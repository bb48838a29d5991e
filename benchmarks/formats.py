"""Make docs/formats: one failing run in every report format. `python -m benchmarks.formats [--model TYPE]`.

The run uses a temporary folder. Only paths of this machine in tracebacks are replaced.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hardware.errors import HwCompatError
from reports.formats import FORMATS, OF_A_RUN, suffix_of

ROOT = Path(__file__).parents[1]
SHOWN = ROOT / "docs" / "formats"
CELLS_ONLY = ("badge", "benchmark", "card")
"""Formats that show cells alone, which an answer for one model doesn't have."""
_OF_CELLS = ("--collect-all", "--format")
FINDINGS = 1
"""The exit code of a run and of a report with failures."""


def without_folders(text: str, run: Path) -> str:
    """Replace the paths of Python, of our code and of the run in a text."""
    named = {sys.prefix: "PYTHON", str(ROOT): "HWCOMPAT", str(run.resolve()): ".", str(run): "."}
    for path, shown in named.items():
        text = text.replace(path, shown)
    return text


def main() -> int:
    """Run a failing model and write its report in each format; return 1 if it didn't fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="yoso")
    model = parser.parse_args().model
    environment = {name: text for name, text in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def ended(door: str, *arguments: str) -> str:
            command = [sys.executable, str(ROOT / door), *arguments]
            done = subprocess.run(
                command, cwd=folder, env=environment, check=False, stdout=subprocess.PIPE, encoding="utf-8"
            )
            if done.returncode != FINDINGS:
                raise HwCompatError(
                    f"{door} ended with {done.returncode}", fix="Name a type that fails with --model."
                )
            return done.stdout

        try:
            ended("run_test_generation.py", "--model", model, "--device", "cpu", "--run")
            about = ("--check-model", model, "--device", "cpu", "--without-memory", "--format")
            formats = [each for each in FORMATS.names() if each not in OF_A_RUN]
            texts = {
                each: ended("hardware_compatibility_reporter.py", *(_OF_CELLS if each in CELLS_ONLY else about), each)
                for each in formats
            }
        except HwCompatError as error:
            print(error, file=sys.stderr)
            return 1
        for each in OF_A_RUN:
            (path,) = (folder / "hwcompat-out" / "reports").glob(f"*.{suffix_of(each)}")
            texts[each] = path.read_text(encoding="utf-8")
    SHOWN.mkdir(parents=True, exist_ok=True)
    for each in texts:
        text = without_folders(texts[each], folder)
        (SHOWN / f"failure.{suffix_of(each)}").write_text(text, encoding="utf-8")
        print(f"docs/formats/failure.{suffix_of(each)}  {len(text)} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
