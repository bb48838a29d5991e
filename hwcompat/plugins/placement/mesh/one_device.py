"""What runs beside the ranks: each model whole, on one device, in float32 and in float64, and the figures of a plan.
`python -m hwcompat.plugins.placement.mesh.one_device FOLDER STARTER`."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.backends._torch import loss_gradients
from hardware.model.calls import forward
from hardware.model.tensors import to_arrays, to_tensors
from hardware.process import die_with_parent
from hardware.testing.reference import as_reference, float64_gradients, float64_outputs
from hardware.whole_file import write_whole

from .building import built, tensor_dims, tied_names
from .case import JOB_FILE, SEED_FILE, WHOLE_FACTS, WHOLE_FILE, MeshJob
from .stage import NoPipeline, outline_of

if TYPE_CHECKING:
    import torch


def main(folder: Path) -> None:
    """Write `whole-N.npz` and `whole-N.json` for each model of the job."""
    import torch

    torch.set_num_threads(1)
    job: MeshJob = pickle.loads((folder / JOB_FILE).read_bytes())
    for number, model in enumerate(job.models):
        with np.load(folder / SEED_FILE.format(number)) as file:
            inputs = {name: file[name] for name in file.files}
        whole = built(model)
        tensors = to_tensors(inputs, "cpu", torch.float32)
        with torch.no_grad():
            found = {f"out/{name}": one for name, one in to_arrays(forward(whole, tensors)).items()}
        gradients = loss_gradients(whole, tensors, model.masked_by)
        found |= {f"grad/{name}": one for name, one in gradients.items()}
        facts = facts_of(whole, inputs)
        exact = as_reference(whole)
        found |= {f"exact-out/{name}": one for name, one in float64_outputs(exact, inputs).items()}
        wanted = float64_gradients(exact, inputs, model.masked_by)
        found |= {f"exact-grad/{name}": one for name, one in wanted.items()}
        np.savez(folder / WHOLE_FILE.format(number), **found)  # type: ignore[arg-type] # names of outputs
        write_whole(folder / WHOLE_FACTS.format(number), json.dumps(facts))


def facts_of(whole: torch.nn.Module, inputs: Any) -> dict[str, Any]:
    """Names and shapes of all parameters, what is tied, along which axis a tensor split divides each, and which run
    before, in and after the layers."""
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
    shapes = {name: list(one.shape) for name, one in whole.named_parameters()}
    return {"shapes": shapes, "tied": tied_names(whole), "dims": tensor_dims(whole), **stages}


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    main(Path(sys.argv[1]))
