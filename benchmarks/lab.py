"""What running on a lab machine costs beside the run itself: a bundle by its own `run.py` and over ssh, in turns.

`python -m benchmarks.lab --host HOST --host-python PATH`. It says what it means only where HOST is this machine (ssh
to itself), so that both ways compute with the same cores. Prints seconds and bytes; medians and their ratio last.
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
_SENT = re.compile(r"note: (.+) were sent to .+, (.+) came back")


def _timed(words: list[str], environment: dict[str, str]) -> tuple[float, str]:
    started = time.perf_counter()
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        sys.exit(f"{words[:3]} ended with {done.returncode}: {done.stderr[-400:]}")
    return time.perf_counter() - started, done.stderr


def main() -> None:
    """Run both ways `--times` times and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--host-python", default="python3")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    models = [word for model in asked.model or ["bert", "gpt2"] for word in ("--model", model)]
    door = [sys.executable, str(ROOT / "run_test_generation.py"), *models, "--device", "cpu"]
    own: list[float] = []
    over_ssh: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "HWCOMPAT_CACHE": str(folder / "cache")}
        _timed([*door, "--bundle", str(folder / "suite.zip")], environment)
        with zipfile.ZipFile(folder / "suite.zip") as archive:
            archive.extractall(folder)
        for number in range(asked.times):
            there = folder / f"evidence-{number}"
            run = [asked.host_python, str(folder / "suite" / "run.py"), "--device", "cpu", "--evidence", str(there)]
            own.append(_timed(run, environment)[0])
            kept = folder / f"home-{number}"
            where = [f"--{one}={kept / one}" for one in ("output-dir", "evidence", "report-dir")]
            lab = [*door, "--run", "--host", asked.host, "--host-python", asked.host_python, *where]
            seconds, told = _timed(lab, environment)
            over_ssh.append(seconds)
            found = _SENT.search(told)
            print(
                f"run.py {own[-1]:.1f} s, --host {seconds:.1f} s, sent and back: {found.groups() if found else '?'}"
            )
    ratios = [one / other for one, other in zip(over_ssh, own, strict=True)]
    print(
        f"medians: run.py {statistics.median(own):.1f} s, --host {statistics.median(over_ssh):.1f} s, "
        f"ratio {statistics.median(ratios):.2f}"
    )


if __name__ == "__main__":
    main()
