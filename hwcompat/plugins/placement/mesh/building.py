"""Builds the model of a case in the process of a rank: whole with loud weights, or split as transformers does it."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hardware.errors import ModelError, echo
from hardware.testing.loud_weights import fill

from .case import MeshModel

if TYPE_CHECKING:
    import torch


def transformers_class(name: str) -> Any:
    """A class of transformers by its name. Raises `ModelError`."""
    import transformers

    found = getattr(transformers, name, None)
    if found is None:
        raise ModelError(f"{echo(name)} is not a class of transformers {transformers.__version__}")
    return found


def built(model: MeshModel, *, loud: bool = True) -> torch.nn.Module:
    """The whole model on the CPU in float32 and evaluation mode; `loud` with its loud weights, else with those that
    the library draws."""
    config = transformers_class(model.config_class)(**copy.deepcopy(dict(model.config)))
    made = transformers_class(model.model_class)(config).eval()
    if not loud or model.gain is None:
        return made
    return fill(made, gain=model.gain, zero_centered=model.zero_centered)


def split_by_tensor(model: MeshModel, folder: Path, mesh: Any) -> torch.nn.Module:
    """The same model with this rank's part of each layer alone, read from the checkpoint in `folder` by
    `from_pretrained(tp_plan="auto")`, as a user would. `mesh` is the one axis of torch's device mesh."""
    import torch

    # transformers takes the device from torchrun's variable, and counts it as a number of the mesh's device type.
    accelerator = None if mesh.device_type == "cpu" else getattr(torch, mesh.device_type)
    os.environ["LOCAL_RANK"] = str(accelerator.current_device() if accelerator else mesh.get_rank())
    loaded = transformers_class(model.model_class).from_pretrained(
        folder, tp_plan="auto", device_mesh=mesh, dtype=torch.float32
    )
    return cast("torch.nn.Module", loaded.eval())


def tensor_styles(model: torch.nn.Module) -> dict[str, tuple[str, int]]:
    """How transformers' plan for this model divides each parameter, and along which axis; those that every rank holds
    whole aren't there. Empty where the type has no plan."""
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
    """Along which axis a tensor split divides each parameter that it does divide."""
    return {name: dim for name, (_, dim) in tensor_styles(model).items()}


def put_together(parts: list[torch.Tensor], style: str, dim: int) -> torch.Tensor:
    """A whole tensor of the ranks' parts. Of two matrices in one (`packed`), each rank has a part of both."""
    import torch

    if not style.startswith("packed"):
        return torch.cat(parts, dim)
    halves = [one.chunk(2, dim) for one in parts]
    return torch.cat([one[0] for one in halves] + [one[1] for one in halves], dim)


def plan_of(whole: torch.nn.Module) -> dict[str, str]:
    """transformers' own tensor plan of a model, by name of module; empty where its type has none."""
    return dict(getattr(whole, "tp_plan", None) or {})


def tied_names(whole: torch.nn.Module) -> dict[str, str]:
    """Names under which a parameter appears once more -> its first name."""
    first: dict[int, str] = {}
    found = {}
    for name, parameter in whole.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            found[name] = first[id(parameter)]
    return found


def plain_name(name: str) -> str:
    """A parameter's own name: transformers keeps the bias of a module that it splits by rows as `_bias`, and DDP puts
    `module.` in front."""
    owner, _, last = name.removeprefix("module.").rpartition(".")
    return f"{owner}.{last.removeprefix('_')}" if last == "_bias" else name.removeprefix("module.")
