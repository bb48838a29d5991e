"""The demo of devices and placement with what can be measured here: `python examples/enhanced_multi_vendor_demo.py`.

After all that `multi_vendor_demo.py` shows: a product of matrices on every device of torch that is here, right
numbers first and then its rate beside the processor's; and a model split over ranks, whose outputs are held against
one device (`--mesh`; gloo on processors, NCCL and its like on GPUs). `--quick` takes two ranks and small matrices.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from multi_vendor_demo import gathered, parsed

from hwcompat.hardware.backends._torch import TorchBackend
from hwcompat.hardware.backends.factory import get_backend, known_targets

ROOT = Path(__file__).parents[1]


def measured(size: int, runs: int) -> list[dict[str, Any]]:
    """A product of two matrices on each device of torch: its rate (median of `runs`) where the numbers are right."""
    import torch

    left, right = (torch.randn(size, size, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    want = left.double() @ right.double()
    found: list[dict[str, Any]] = []
    for name in known_targets():
        backend = get_backend(name)
        if not isinstance(backend, TorchBackend):
            continue
        if reason := backend.unavailable():
            found.append({"device": name, "skipped": reason})
            continue
        there, other = backend.to_device(left), backend.to_device(right)
        error = float(((there @ other).cpu().double() - want).abs().max() / want.abs().max())
        seconds = []
        for _ in range(runs):
            started = time.perf_counter()
            product = there @ other
            backend.synchronize()
            seconds.append(time.perf_counter() - started)
            del product
        rate = 2 * size**3 / statistics.median(seconds) / 1e12
        found.append({"device": name, "error": error, "right": error < 1e-5, "tflops": rate})
    return found


def show_measured(rows: list[dict[str, Any]]) -> None:
    """Print rates beside that of the processor; of what is wrong, or isn't here, why."""
    base = next((row["tflops"] for row in rows if row["device"] == "cpu" and row.get("right")), None)
    for row in rows:
        if "skipped" in row:
            print(f"{row['device']}: skipped: {row['skipped']}")
        elif not row["right"]:
            print(f"{row['device']}: wrong: off by {row['error']:.1e} of the largest number")
        else:
            beside = f", {row['tflops'] / base:.2f} of cpu" if base else ""
            print(f"{row['device']}: {row['tflops']:.3g} TFLOPS{beside} (error {row['error']:.1e})")
    print()


def mesh(split: str) -> dict[str, Any]:
    """What `--mesh` says of bert split over ranks that share this machine's processor."""
    command = [sys.executable, str(ROOT / "run_test_generation.py"), "--model", "bert", "--mesh", split]
    done = subprocess.run(
        [*command, "--device", "cpu", "--format", "json"], capture_output=True, text=True, check=False, timeout=600
    )
    if not done.stdout.strip():
        return {"split": split, "passed": False, "reason": done.stderr.strip()[-400:]}
    said: dict[str, Any] = json.loads(done.stdout)
    return {"split": split, "passed": done.returncode == 0, "report": said}


def main() -> None:
    """Print, and keep; 1 where the split model isn't the whole one."""
    asked = parsed(__doc__ or "")
    found = gathered(asked.replay)
    print("== measured here\n")
    found["measured"] = measured(256 if asked.quick else 1024, 3 if asked.quick else 7)
    show_measured(found["measured"])
    print("== one model over several ranks\n")
    found["mesh"] = mesh("data=2" if asked.quick else "data=2,tensor=2")
    print(f"bert, {found['mesh']['split']}: {'equal to one device' if found['mesh']['passed'] else 'NOT equal'}")
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if found["mesh"]["passed"] else 1)


if __name__ == "__main__":
    main()
