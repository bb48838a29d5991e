"""Prints docs/QNN.md: what evidence says of model types on target qnn, and which operator stands in the others' way.

`python -m benchmarks.qnn_table [--keep] [EVIDENCE…] > docs/QNN.md`, where the folders are what `--run --device qnn`
left; without one, what is kept in docs/evidence. `--keep` writes what counts there. The last run of a check counts.
"""

from __future__ import annotations

from pathlib import Path

import click

from hardware.target import Target

from .evidence_table import gathered, keep
from .target_table import Wording, print_page

KEPT = Path("docs/evidence/qnn.jsonl.gz")

_HEAD = """# Target qnn

Made by `python -m benchmarks.qnn_table` from the evidence of `python run_test_generation.py --device qnn --run`, with
runs from {dates}. Versions: {versions}.

Everything here was computed by {device}.
It stands for a device: operators and arithmetic are HTP's, speed and memory aren't, and nothing here ran on an NPU.
Every session was strict (`session.disable_cpu_ep_fallback`), so that no operator ran on the host; which provider took
each node is ONNX Runtime's own record.

Errors are the largest of all checks that compare, relative to the output's scale, against a float64 reference. HTP
computes float32 graphs in a float16 of its own: 11 bits of mantissa, no infinity, up to 131,008. What is saved and
loaded again (`save_reload`) is a context binary that was compiled ahead of time. It doesn't decode with a cache.
"""

WORDING = Wording(
    target=Target(name="qnn"),
    head=_HEAD,
    versions=("onnxruntime-qnn", "onnxruntime (qnn)", "onnx", "torch", "transformers", "hwcompat"),
    column="nodes on HTP",
    left=r"it leaves (.+?) to the host",
    refuses="HTP doesn't take",
    named=r"type: (\w+) \}",
    noise=(
        "^Unsupported: ",
        "^QNN doesn't run the model: ",
        r"; Unsupported nodes(?s:.*)",
        r"\[ONNXRuntimeError\] : \d+ : \w+ : ",
    ),
)


@click.command()
@click.option("--keep", "keeps", is_flag=True, help=f"Write the lines that count to {KEPT}.")
@click.argument("places", nargs=-1, type=click.Path(path_type=Path, exists=True))
def main(places: tuple[Path, ...], keeps: bool) -> None:
    """Print the page."""
    if keeps:
        keep(gathered(places or (KEPT,)), WORDING.target, KEPT)
    print_page(WORDING, (KEPT,) if keeps else places or (KEPT,))


if __name__ == "__main__":
    main()
