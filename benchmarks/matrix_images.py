"""Make the pictures of the matrix page with Chromium: `python -m benchmarks.matrix_images --evidence DIR`.

The page contains only that evidence, so that pictures show measured cells only.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hardware.workers.browsers import QUIET

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
TARGETS = "cpu,cuda,rocm,mps,xpu,openvino,qnn,webnn,webgpu"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_DARK = "--blink-settings=preferredColorScheme=0"

_CELL = "#?q=gpt2&cell=gpt2/text-generation/openvino/float32"
PICTURES = {
    "matrix.png": ((), "", "1280,1120", ()),
    "matrix-cell.png": (
        ("--by", "model"),
        _CELL,
        "1280,1300",
        (_DARK,),
    ),
    "matrix-narrow.png": (("--by", "family"), "", "400,900", ()),
}
"""For each picture: the options of the page, its URL fragment, the window size in pixels, and the color scheme."""


def main() -> int:
    """Make the pictures; return 1 if there is no browser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evidence", type=Path, required=True)
    asked = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"no browser was found; looked for {', '.join(BROWSERS)}", file=sys.stderr)
        return 1
    for name, (more, fragment, size, colors) in PICTURES.items():
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            command = [sys.executable, "run_test_generation.py", "--hardware-compatibility", "--format", "html"]
            command += ["--targets", TARGETS, "--evidence", str(asked.evidence.resolve()), *more]
            with page.open("wb") as file:
                subprocess.run(command, cwd=ROOT, check=True, stdout=file)
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
            options += [*QUIET, f"--user-data-dir={folder}/profile", f"--screenshot={IMAGES / name}", *colors]
            subprocess.run([browser, *options, page.as_uri() + fragment], check=True, capture_output=True)
        print(f"docs/images/{name}  {(IMAGES / name).stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
