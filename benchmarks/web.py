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
from hardware.workers import Worker, environment_of, web_folder
from hardware.workers.process import SCRIPT

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
_WORKERS = Path(__file__).parents[1] / "hardware" / "workers"


@click.group()
def main() -> None:
    """Browsers: what they cost."""


@main.command()
@click.option("--runs", type=int, default=7, show_default=True)
def start(runs: int) -> None:
    """A browser with a page that can run models, beside the same browser with an empty page."""
    sys.path.append(str(_WORKERS))
    import browsers  # type: ignore[import-not-found] # imports nothing of ours, as a worker has it

    for api in ("webgpu", "webnn"):
        python = environment_of(api).python
        if python is None:
            raise click.ClickException(environment_of(api).reason)
        folder = web_folder(python)
        bare, ours = [], []
        asked = [str(browsers.executable(api, folder)), json.dumps(browsers.arguments(api, software=False))]
        for _ in range(runs):
            ran = subprocess.run([python, "-c", _BARE, *asked], capture_output=True, text=True, check=True)
            bare.append(float(ran.stdout))
            with Worker(python, timeout_s=60, script=SCRIPT.with_name("web_worker.py")) as worker:
                settings = {"api": api, "runtime": str(folder.absolute()), "software": False}
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

    def watch() -> None:
        while process.poll() is None:
            try:
                seen.append(psutil.Process(process.pid).memory_info().rss)
            except psutil.NoSuchProcess:
                return
            time.sleep(2)

    threading.Thread(target=watch, daemon=True).start()
    process.wait()
    took = time.monotonic() - started
    third = max(len(seen) // 3, 1)
    early, late = (statistics.median(part) / 2**20 for part in (seen[third : 2 * third] or seen, seen[-third:]))
    left = [one for one in psutil.process_iter(["cmdline"]) if "headless" in " ".join(one.info["cmdline"] or ())]
    click.echo(f"{len(drawn)} types on {device}: {took / 60:.1f} min, {took / len(drawn):.1f} s each")
    click.echo(f"memory of the parent: {early:.0f} MiB in the second third, {late:.0f} MiB in the last")
    click.echo(f"browsers left behind: {len(left)}")


if __name__ == "__main__":
    main()
