"""What a lab machine costs beside the run itself: a bundle's `run.py`, `--run` here, and `--host`, in turns.

`python -m benchmarks.lab --host HOST --host-python PATH`. It says what it means only where HOST is this machine (ssh
to itself), so that all compute with the same cores. Prints seconds and bytes; medians and their ratios last.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SENT = re.compile(r"note: (.+ were sent to .+ came back)")


def _timed(words: list[str], environment: dict[str, str]) -> tuple[float, str]:
    started = time.perf_counter()
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        sys.exit(f"{words[:3]} ended with {done.returncode}: {done.stderr[-400:]}")
    return time.perf_counter() - started, done.stderr


def main() -> None:
    """Run all ways `--times` times and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--host-python", default="python3")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    models = [word for model in asked.model or ["bert", "gpt2"] for word in ("--model", model)]
    door = [sys.executable, str(ROOT / "run_test_generation.py"), *models, "--device", "cpu"]
    found: dict[str, list[float]] = {"run.py": [], "--run": [], "--host": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "HWCOMPAT_CACHE": str(folder / "cache")}
        _timed([*door, "--bundle", str(folder / "suite.zip")], environment)
        with zipfile.ZipFile(folder / "suite.zip") as archive:
            archive.extractall(folder)
        run = [asked.host_python, str(folder / "suite" / "run.py"), "--device", "cpu"]
        host = ["--host", asked.host, "--host-python", asked.host_python]
        where = [f"--{one}={folder / one}" for one in ("output-dir", "evidence", "report-dir")]
        for _ in range(asked.times):
            ways = {"run.py": run, "--run": [*door, "--run", *where], "--host": [*door, "--run", *host, *where]}
            told = ""
            for way, words in ways.items():
                seconds, told = _timed(words, environment)
                found[way].append(seconds)
            sent = _SENT.search(told)
            print(*(f"{way} {times[-1]:.1f} s," for way, times in found.items()), sent[1] if sent else "", flush=True)
    for way, times in found.items():
        ratio = statistics.median(one / other for one, other in zip(found["--host"], times, strict=True))
        print(f"{way}: median {statistics.median(times):.1f} s; --host takes {ratio:.2f} times as long")


if __name__ == "__main__":
    main()
