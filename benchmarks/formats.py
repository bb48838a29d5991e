"""Makes docs/formats: one failing run in every format of a report. `python -m benchmarks.formats [--model TYPE]`.

The run happens in a folder of its own. Folders of this machine that tracebacks name are replaced; nothing else is.
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
FINDINGS = 1
"""The exit code of a run and of a report in which something failed."""


def without_folders(text: str, run: Path) -> str:
    """The text with the folders of this machine's Python, of our code and of the run replaced."""
    named = {sys.prefix: "PYTHON", str(ROOT): "HWCOMPAT", str(run.resolve()): ".", str(run): "."}
    for path, shown in named.items():
        text = text.replace(path, shown)
    return text


def main() -> int:
    """Run a model that fails, and write what each format says of it; returns 1 where it didn't fail."""
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
            asked = [each for each in FORMATS.names() if each not in OF_A_RUN]
            texts = {each: ended("hardware_compatibility_reporter.py", *about, each) for each in asked}
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
