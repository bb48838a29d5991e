"""Prints docs/WEB_RESULTS.md: what evidence says of model types in browsers, and what stands in the others' way.

`python -m benchmarks.web_table [--keep] [EVIDENCE…] > docs/WEB_RESULTS.md`, where the folders are what `--run
--device webgpu --device webnn` left; without one, what is kept in docs/evidence. `--keep` writes what counts there.
The last run of a check counts.
"""

from __future__ import annotations

from pathlib import Path

import click

from hardware.target import Target

from .evidence_table import gathered, keep
from .target_table import Wording, page

KEPT = Path("docs/evidence")

_HEAD = """# Models in browsers

Made by `python -m benchmarks.web_table` from the evidence of `python run_test_generation.py --device webgpu --device
webnn --run`. How it works, and what these targets prove, stands in [WEB.md](WEB.md).
"""

_TARGET = """
# Target {name}

Runs from {{dates}}. Versions: {{versions}}.

Everything here was computed by {{device}}. {limits} ONNX Runtime Web puts operators that its provider doesn't take on
WebAssembly without a word; a cell with any of those passes only where what they read are whole numbers or truth
values: indices, shapes and masks. Errors are the largest of all checks that compare, relative to the output's scale,
against a float64 reference.
"""


def _wording(name: str, versions: tuple[str, ...], limits: str) -> Wording:
    return Wording(
        target=Target(name=name),
        head=_TARGET.format(name=name, limits=limits),
        versions=(*versions, "onnx", "torch", "transformers", "hwcompat"),
        column="nodes on it",
        left=r"alone: (.+?) ran on the host",
        refuses="on the host:",
        noise=("^Unsupported: ", "^ONNX Runtime Web doesn't run the model: ", r"\[ONNXRuntimeError\] : \d+ : \w+ : "),
        on_host="nothing on the host but indices, shapes and masks",
    )


WORDINGS = (
    _wording(
        "webgpu",
        ("onnxruntime-web (webgpu)", "chromium (webgpu)"),
        "SwiftShader computes on the host's processor: it shows kernels and their arithmetic, and stands for no GPU.",
    ),
    _wording(
        "webnn",
        ("onnxruntime-web (webnn)", "@sparticuz/chromium (webnn)"),
        "The context is the browser's CPU one.",
    ),
)


@click.command()
@click.option("--keep", "keeps", is_flag=True, help=f"Write the lines that count to {KEPT}.")
@click.argument("places", nargs=-1, type=click.Path(path_type=Path, exists=True))
def main(places: tuple[Path, ...], keeps: bool) -> None:
    """Print the page."""
    text = [_HEAD]
    for wording in WORDINGS:
        kept = KEPT / f"{wording.target.name}.jsonl.gz"
        if keeps:
            keep(gathered(places or (kept,)), wording.target, kept)
        found = gathered((kept,) if keeps else places or (kept,))
        text.append(page(wording, found.runs, found.checks))
    click.echo("\n".join(text))


if __name__ == "__main__":
    main()
