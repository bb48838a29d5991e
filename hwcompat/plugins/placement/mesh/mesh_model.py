"""Build the model of a case: whole with its seeded test weights, or split by transformers.

`python -m hwcompat.plugins.placement.mesh.mesh_model FOLDER STARTER` runs beside the ranks: it computes each model of
a job whole, on one device, in float32 and in float64.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.model.calls import forward, to_arrays, to_tensors
from hwcompat.hardware.plain_values import from_values
from hwcompat.hardware.process import die_with_parent
from hwcompat.hardware.testing.reference import as_reference, float64_gradients, float64_outputs
from hwcompat.hardware.testing.seeded_weights import fill

from .mesh_case import JOB_FILE, WHOLE_FILE, MeshJob, MeshModel, keep, kept
from .pipeline_stage import NoPipeline, outline_of

if TYPE_CHECKING:
    import torch


def transformers_class(name: str) -> Any:
    """Return a class of transformers by its name. Raises `ModelError`."""
    import transformers

    found = getattr(transformers, name, None)
    if found is None:
        raise ModelError(f"{echo(name)} isn't a class of transformers {transformers.__version__}")
    return found


def built(model: MeshModel, *, seeded: bool = True) -> torch.nn.Module:
    """Build the whole model on the CPU in float32 and evaluation mode, with seeded test weights (`seeded`) or the
    library's random ones."""
    config = transformers_class(model.config_class)(**copy.deepcopy(dict(model.config)))
    made = transformers_class(model.model_class)(config).eval()
    if not seeded or model.gain is None:
        return made
    return fill(made, gain=model.gain, zero_centered=model.zero_centered)


def split_by_tensor(model: MeshModel, folder: Path, mesh: Any) -> torch.nn.Module:
    """Load this rank's part of each layer from the checkpoint in `folder` by `from_pretrained(tp_plan="auto")`, as a
    user would. `mesh` is the one axis of torch's device mesh."""
    import torch

    # transformers reads the device from torchrun's variable, and counts it as an index of the mesh's device type.
    accelerator = None if mesh.device_type == "cpu" else getattr(torch, mesh.device_type)
    os.environ["LOCAL_RANK"] = str(accelerator.current_device() if accelerator else mesh.get_rank())
    loaded = transformers_class(model.model_class).from_pretrained(
        folder, tp_plan="auto", device_mesh=mesh, dtype=torch.float32
    )
    return cast("torch.nn.Module", loaded.eval())


def tensor_styles(model: torch.nn.Module) -> dict[str, tuple[str, int]]:
    """Return how transformers' plan for this model divides each parameter, and along which axis, without those that
    every rank holds whole. Empty if the type has no plan."""
    try:
        from transformers.integrations.tensor_parallel import ALL_PARALLEL_STYLES, _get_parameter_tp_plan
    except ImportError:  # another release of transformers
        return {}
    found = {}
    for own, parameter in model.named_parameters():
        name = plain_name(own)
        style = _get_parameter_tp_plan(name, plan_of(model))
        is_bias = name.endswith("bias")
        dims = ALL_PARALLEL_STYLES.plan_to_bias_dim if is_bias else ALL_PARALLEL_STYLES.plan_to_weight_dim
        dim = dims.get(style, 0 if style == "grouped_gemm" else None)
        if style is not None and dim is not None and parameter.ndim >= -dim:
            found[name] = style, dim % parameter.ndim
    return found


def tensor_dims(model: torch.nn.Module) -> dict[str, int]:
    """Return the axis along which a tensor split divides each parameter that it does divide."""
    return {name: dim for name, (_, dim) in tensor_styles(model).items()}


def put_together(parts: list[torch.Tensor], style: str, dim: int) -> torch.Tensor:
    """Return the whole tensor of the ranks' parts. Two matrices in one (`packed`) are divided separately."""
    import torch

    if not style.startswith("packed"):
        return torch.cat(parts, dim)
    halves = [one.chunk(2, dim) for one in parts]
    return torch.cat([one[0] for one in halves] + [one[1] for one in halves], dim)


def plan_of(whole: torch.nn.Module) -> dict[str, str]:
    """Return transformers' own tensor plan of a model, by name of module; empty if its type has none."""
    return dict(getattr(whole, "tp_plan", None) or {})


def tied_names(whole: torch.nn.Module) -> dict[str, str]:
    """Return the other names of shared parameters -> the first name."""
    first: dict[int, str] = {}
    found = {}
    for name, parameter in whole.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            found[name] = first[id(parameter)]
    return found


def plain_name(name: str) -> str:
    """Return a parameter's own name: transformers keeps the bias of a module that it splits by rows as `_bias`, and
    DDP adds the prefix `module.`."""
    owner, _, last = name.removeprefix("module.").rpartition(".")
    return f"{owner}.{last.removeprefix('_')}" if last == "_bias" else name.removeprefix("module.")


def main(folder: Path) -> None:
    """Write `whole-N` for each model of the job: outputs and gradients in both precisions, and its facts."""
    import torch

    torch.set_num_threads(1)
    job = from_values(MeshJob, kept(folder / JOB_FILE))
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
    """Return names and shapes of all parameters, which are tied, the axis along which a tensor split divides each,
    and which run before, in and after the layers (see `side_of`)."""
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
    """Return the layer of a parameter, or whether it runs `before` the layers or `after` them."""
    if facts["layers"] and name.startswith(f"{facts['layers']}."):
        return int(name.removeprefix(f"{facts['layers']}.").partition(".")[0])
    return "before" if any(name.startswith(f"{module}.") for module in facts["before"]) else "after"


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    main(Path(sys.argv[1]))
