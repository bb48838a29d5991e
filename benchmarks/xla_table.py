"""Prints docs/XLA.md: what evidence says of model types on target tpu:xla-cpu, and what stands in the others' way.

`python -m benchmarks.xla_table EVIDENCE_FOLDER… > docs/XLA.md`, where the folders are what `--run --device
tpu:xla-cpu` left. The last run of a check counts.
"""

from __future__ import annotations

from pathlib import Path

import click

from hardware.target import Target

from .target_table import Wording, print_page

_HEAD = """# Target tpu:xla-cpu

Made by `python -m benchmarks.xla_table` from the evidence of `python run_test_generation.py --device tpu:xla-cpu
--run`, with runs from {dates}. Versions: {versions}.

Everything here was computed by {device}.
It is no TPU and stands for none: what is shown is that each operator of a model has a lowering to XLA's, that XLA
compiles it, and that its numbers are right. Kernels, arithmetic, memory and speed of a TPU aren't shown, and nothing
here ran on one. No cell is more than `medium`.

A model goes to XLA as a program of torch.export; torchax lowers it, and an operator without a lowering is refused.
Instructions are those of the compiled module of one forward pass; what calls the host in one (callbacks, transfers,
custom calls that aren't known) would count as offloaded, and so would what torch computes beside it. Gradients are
XLA's own, decoding has a cache, and what is saved and loaded again (`save_reload`) is StableHLO that was lowered for
CPU and for TPU. Errors are the largest of all checks that compare, relative to the output's scale, against a float64
reference.
"""

WORDING = Wording(
    target=Target(name="tpu", variant="xla-cpu"),
    head=_HEAD,
    versions=("torchax", "jax (tpu)", "jaxlib (tpu)", "torch", "transformers", "hwcompat"),
    column="instructions of XLA",
    left=r"torchax has no lowering for (.+)$",
    refuses="torchax has no lowering for",
    noise=("^Unsupported: ", "^XLA doesn't run the model: "),
)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(folders: tuple[Path, ...]) -> None:
    """Print the page."""
    print_page(WORDING, folders)


if __name__ == "__main__":
    main()
