"""What browsers cost: how long ours takes to start beside a bare one, and whether memory grows from model to model.

    python -m benchmarks.web start               medians of several, in turns with a bare browser
    python -m benchmarks.web models --count 100  so many types on webgpu by the main job: time, memory of the parent

The second wants an export cache that is filled, or it measures exports: run it twice.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import click
import psutil

from generators.models.store import stored_recipes
from hardware.backends.factory import get_backend
from hardware.workers import browsers

_BARE = """
import json, sys, time
from playwright.sync_api import sync_playwright
started = time.perf_counter()
with sync_playwright() as driver:
    browser = driver.chromium.launch(executable_path=sys.argv[1], headless=True, args=json.loads(sys.argv[2]))
    page = browser.new_context().new_page()
    page.goto("about:blank")
    print(time.perf_counter() - started)
    browser.close()
"""
_LONGEST_S = 24 * 3600


@click.group()
def main() -> None:
    """Browsers: what they cost."""


@main.command()
@click.option("--runs", type=int, default=7, show_default=True)
def start(runs: int) -> None:
    """A browser with a page that can run models, beside the same browser with an empty page."""
    for api in ("webgpu", "webnn"):
        backend = get_backend(api)
        if reason := backend.missing():
            raise click.ClickException(reason)
        python, settings = backend.environment.python, backend.places()
        bare, ours = [], []
        asked = [settings["browser"], json.dumps(browsers.arguments(api, software=False))]
        for _ in range(runs):
            bare_one = [str(python), "-c", _BARE, *asked]
            ran = subprocess.run(bare_one, capture_output=True, text=True, check=True, timeout=120)
            bare.append(float(ran.stdout))
            with backend.new_worker(python) as worker:
                ours.append(float(worker.call("describe", settings=settings)["started_s"]))
        one, other = statistics.median(ours), statistics.median(bare)
        click.echo(f"{api}: {one:.2f} s, a bare browser {other:.2f} s: {one - other:+.2f} s (medians of {runs})")


@main.command()
@click.option("--count", type=int, default=100, show_default=True)
@click.option("--device", default="webgpu", show_default=True)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Where evidence goes.")
def models(count: int, device: str, out: Path | None) -> None:
    """So many types, drawn evenly from all in alphabetical order: wall time, and the parent's memory on the way."""
    names = sorted({one.model_type for one in stored_recipes()})
    drawn = names[:: max(len(names) // count, 1)][:count]
    folder = out or Path(tempfile.mkdtemp(prefix="hwcompat-web-"))
    places = [f"--{name}={folder / name}" for name in ("output-dir", "evidence", "report-dir")]
    chosen = [word for name in drawn for word in ("--model", name)]
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "run_test_generation.py", *chosen, "--device", device, "--run", "--jobs", "1", *places],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    seen: list[int] = []
    started_by_it: dict[int, psutil.Process] = {}

    def watch() -> None:
        """The parent's memory, and who it started: a process keeps its number and its time of birth."""
        while process.poll() is None:
            try:
                parent = psutil.Process(process.pid)
                seen.append(parent.memory_info().rss)
                started_by_it.update({one.pid: one for one in parent.children(recursive=True)})
            except psutil.NoSuchProcess:
                return
            time.sleep(2)

    threading.Thread(target=watch, daemon=True).start()
    try:
        process.wait(timeout=_LONGEST_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # it ends its children, and closes its record
        process.wait(timeout=60)
        raise click.ClickException(f"{len(drawn)} types took longer than {_LONGEST_S / 3600:g} hours") from None
    took = time.monotonic() - started
    third = max(len(seen) // 3, 1)
    early, late = (statistics.median(part) / 2**20 for part in (seen[third : 2 * third] or seen, seen[-third:]))
    deadline = time.monotonic() + 10
    while (left := [one for one in started_by_it.values() if one.is_running()]) and time.monotonic() < deadline:
        time.sleep(0.5)
    click.echo(f"{len(drawn)} types on {device}: {took / 60:.1f} min, {took / len(drawn):.1f} s each")
    click.echo(f"memory of the parent: {early:.0f} MiB in the second third, {late:.0f} MiB in the last")
    click.echo(f"processes left behind: {len(left)}")


if __name__ == "__main__":
    main()
