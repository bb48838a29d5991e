"""What runs beside the ranks: each model whole, on one device, in float32 and in float64, and the figures of a plan.
`python -m hwcompat.plugins.placement.mesh.one_device FOLDER STARTER`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.model.calls import forward
from hardware.model.tensors import to_arrays, to_tensors
from hardware.process import die_with_parent
from hardware.testing.reference import as_reference, float64_gradients, float64_outputs

from .building import built, tensor_dims, tied_names
from .case import JOB_FILE, WHOLE_FILE, MeshJob, keep, kept
from .stage import NoPipeline, outline_of

if TYPE_CHECKING:
    import torch


def main(folder: Path) -> None:
    """Leave `whole-N` for each model of the job: outputs and gradients in both precisions, and its facts."""
    import torch

    torch.set_num_threads(1)
    job: MeshJob = kept(folder / JOB_FILE)
    for number, (model, inputs) in enumerate(zip(job.models, job.inputs, strict=True)):
        whole = built(model)
        tensors = to_tensors(inputs, "cpu", torch.float32)
        with torch.no_grad():
            found: dict[str, Any] = {"out": to_arrays(forward(whole, tensors))}
        found |= facts_of(whole, inputs)
        exact = as_reference(whole)
        found["exact_out"] = float64_outputs(exact, inputs)
        found["exact_grad"] = float64_gradients(exact, inputs, model.masked_by)
        keep(folder / WHOLE_FILE.format(number), found)


def facts_of(whole: torch.nn.Module, inputs: Any) -> dict[str, Any]:
    """Names and shapes of all parameters, what is tied, along which axis a tensor split divides each, and which run
    before, in and after the layers (see `side_of`)."""
    import torch

    try:
        outline = outline_of(whole, to_tensors(inputs, "cpu", torch.float32))
        stages: dict[str, Any] = {
            "layers": outline.layers,
            "count": outline.count,
            "before": list(outline.before),
            "after": [*outline.after, *outline.unused],
            "no_pipeline": "",
        }
    except NoPipeline as error:
        stages = {"layers": "", "count": 0, "before": [], "after": [], "no_pipeline": str(error)}
    shapes = {name: tuple(one.shape) for name, one in whole.named_parameters()}
    return {"shapes": shapes, "tied": tied_names(whole), "dims": tensor_dims(whole), **stages}


def side_of(name: str, facts: Mapping[str, Any]) -> int | str:
    """The layer that a parameter is of; else whether it runs `before` the layers or `after` them."""
    if facts["layers"] and name.startswith(f"{facts['layers']}."):
        return int(name.removeprefix(f"{facts['layers']}.").partition(".")[0])
    return "before" if any(name.startswith(f"{module}.") for module in facts["before"]) else "after"


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    main(Path(sys.argv[1]))
