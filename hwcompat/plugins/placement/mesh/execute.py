"""Run a rank's part of a model: outputs, outputs with one rank damaged, gradients, memory and traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.hardware.backends._torch_checks import loss_weights
from hwcompat.hardware.model.calls import forward, to_arrays, to_tensors, without_cache
from hwcompat.hardware.model.outputs import nested, results
from hwcompat.hardware.output_masks import masks_of

from .axes import AXES
from .mesh_case import TORCH_AXES, MeshCase, MeshModel
from .mesh_model import plain_name, put_together, tensor_styles
from .pipeline_stage import PipelineStage

if TYPE_CHECKING:
    import torch

    from hwcompat.hardware.backends.base import Array

_NAMESPACES = ("c10d", "_c10d_functional")
_NAMES = {
    "allreduce_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "broadcast_": "broadcast",
    "send": "send",
    "recv_": "recv",
}
"""Operators of torch's namespace c10d -> their names in its documentation."""

DAMAGE = 1.25
"""The factor by which all parameters of one rank are multiplied, to test whether others use its results."""


class Traffic:
    """Counts the communication of a rank: every call of torch.distributed passes torch's dispatcher.

    `calls` and `sizes` (bytes) are by operation and axis, such as `all_reduce on tensor`; `axes` maps names of
    process groups to axes. `on_call` is called before each.
    """

    def __init__(self, axes: Mapping[str, str], on_call: Callable[[], None]) -> None:
        self.axes = dict(axes)
        self.calls: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()
        self._on_call = on_call

    @contextmanager
    def watched(self) -> Iterator[Traffic]:
        """Count while the block runs."""
        from torch.utils._python_dispatch import TorchDispatchMode

        note = self._note

        class Watching(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
            def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if operator.namespace in _NAMESPACES:
                    note(operator._schema.name.partition("::")[2], args)
                return operator(*args, **(kwargs or {}))

        with Watching():
            yield self

    def _note(self, operator: str, arguments: tuple[Any, ...]) -> None:
        from torch.utils._pytree import tree_leaves

        axis = next((self.axes.get(name, "others") for one in arguments if (name := _group_name(one))), "others")
        name = f"{_NAMES.get(operator, operator)} on {axis}"
        self.calls[name] += 1
        self.sizes[name] += sum(one.nbytes for one in tree_leaves(arguments[:1]) if hasattr(one, "nbytes"))
        self._on_call()


class RankRunner:
    """One rank of a case. `own` are the inputs of its copy of the model, `whole` those of all copies."""

    def __init__(
        self,
        case: MeshCase,
        model: MeshModel,
        part: torch.nn.Module,
        stage: PipelineStage | None,
        mesh: Any,
        own: Mapping[str, Array],
        whole: Mapping[str, Array],
        progress: Any,
    ) -> None:
        import torch

        self.case, self.model, self.part, self.stage, self.mesh = case, model, part, stage, mesh
        self.progress = progress
        self.whole = whole
        device = "cpu" if stage is not None else next(part.parameters()).device
        if stage is not None and not stage.by_host:
            device = stage.device
        self.tensors = to_tensors(own, device, torch.float32)
        self.axes = {mesh.get_group(own).group_name: axis for own, axis in zip(TORCH_AXES, AXES, strict=True)}
        self.copy = mesh.get_coordinate()[1]
        self.is_last = stage is None or stage.is_last

    def run(self) -> dict[str, Any]:
        """Return arrays by name: outputs (`out`), outputs with each rank in turn damaged (`damaged`), gradients
        (`grad`); the shapes of its parameters (`held`), their bytes, and its communication in both passes."""
        self.progress.step(f"{self.case.name}: forward")
        with self._count_traffic() as traffic:
            outputs = self._forward()
        held = {plain_name(name): one for name, one in self.part.named_parameters() if not one.is_meta}
        found: dict[str, Any] = {
            "out": self._gather_outputs(outputs),
            "damaged": [],
            "held": {name: tuple(one.shape) for name, one in held.items()},
            "bytes": sum(one.numel() * one.element_size() for one in held.values()),
            "forward": traffic.calls,
            "forward_bytes": traffic.sizes,
            "backward": {},
        }
        for rank in range(self.case.split.size):
            self.progress.step(f"{self.case.name}: damage to rank {rank}")
            with self._damage(rank):
                found["damaged"].append(self._gather_outputs(self._forward()))
        if self.case.gradients:
            self.progress.step(f"{self.case.name}: backward")
            with self._count_traffic() as traffic:
                self._backward()
            found |= {"backward": traffic.calls, "grad": self._gradients()}
        return found

    def _count_traffic(self) -> AbstractContextManager[Traffic]:
        return Traffic(self.axes, self.progress.communicated).watched()

    @contextmanager
    def _damage(self, rank: int) -> Iterator[None]:
        """Damage all parameters inside of the block if this is the given rank."""
        import torch

        own = self.part.parameters() if self.mesh.get_rank() == rank else ()
        kept = [(one, one.detach().clone()) for one in own if not one.is_meta]
        with torch.no_grad():
            for one, _ in kept:
                one.mul_(DAMAGE)
        try:
            yield
        finally:
            with torch.no_grad():
                for one, before in kept:
                    one.copy_(before)

    # One pass

    def _forward(self) -> dict[str, torch.Tensor]:
        """Return the outputs of this copy by name; empty on any stage but the last."""
        import torch

        with torch.no_grad():
            if self.stage is None:
                return forward(self.part, self.tensors)
            return self._through_pipeline(None)

    def _through_pipeline(self, loss: Any, target: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        assert self.stage is not None
        split, stage = self.case.split, self.stage
        device = next(iter(self.tensors.values())).device
        pipe = PipelineStage(
            stage.module, self.mesh.get_coordinate()[0], split.pipeline, device, group=self.mesh.get_group("pp")
        )
        schedule = ScheduleGPipe(pipe, self.case.microbatches, loss_fn=loss, scale_grads=False)
        first = () if not stage.is_first else (next(iter(self.tensors.values())),)
        given = schedule.step(*first, target=target if stage.is_last else None, **self.tensors)
        if not stage.is_last:
            return {}
        given = given if isinstance(given, tuple | list) else (given,)
        return dict(zip(stage.outputs, given, strict=True))

    def _gather_outputs(self, outputs: Mapping[str, torch.Tensor]) -> dict[str, Array]:
        """Return the outputs of all copies, concatenated, on the ranks of the last stage."""
        import torch

        if self.case.split.data == 1 or not self.is_last:
            return to_arrays(outputs)
        return to_arrays({name: torch.cat(self._of_all("dp", one)) for name, one in sorted(outputs.items())})

    # Gradients

    def _weights(self, outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the weight of each element of this copy's outputs in the loss of the whole batch, as on one device;
        times the number of copies, since gradients of copies are averaged."""
        import torch

        copies = self.case.split.data
        numbers = {name: one for name, one in self.whole.items() if one.dtype.kind in "iub"}
        masks = masks_of(self.model.masked_by, numbers)
        found = {}
        for name, one in outputs.items():
            if not one.is_floating_point():
                continue
            shape = (one.shape[0] * copies, *one.shape[1:])
            whole = loss_weights(shape, masks.get(name)) * copies
            own = np.ascontiguousarray(whole[self.copy * one.shape[0] : (self.copy + 1) * one.shape[0]])
            found[name] = torch.as_tensor(own).to(device=one.device, dtype=one.dtype)
        return found

    def _backward(self) -> None:
        self.part.zero_grad(set_to_none=True)
        if self.stage is None:
            self._backward_of_copies()
            return
        weights = self._weights(self._forward())
        self._through_pipeline(_weighted_loss, _concatenate(list(weights.values())) if weights else None)
        self._average_gradients()

    def _backward_of_copies(self) -> None:
        from torch.nn.parallel import DistributedDataParallel

        run: Any = self.part
        if self.case.split.data > 1:
            group = self.mesh.get_group("dp")
            run = DistributedDataParallel(self.part, process_group=group, find_unused_parameters=True)
        outputs = results(run(**nested(self.tensors), **without_cache(self.part)))
        weights = self._weights(outputs)
        total: Any = sum((outputs[name] * one).sum() for name, one in weights.items() if outputs[name].requires_grad)
        total.backward()

    def _average_gradients(self) -> None:
        """Average the copies' gradients, as DDP does for a model that isn't a stage."""
        import torch.distributed as dist

        if self.case.split.data == 1:
            return
        for one in self.part.parameters():
            if one.grad is not None:
                dist.all_reduce(one.grad, group=self.mesh.get_group("dp"))
                one.grad /= self.case.split.data

    def _gradients(self) -> dict[str, Array]:
        """Return this stage's gradients, with the parts of a tensor split joined."""
        named = {plain_name(name): one.grad for name, one in self.part.named_parameters() if one.grad is not None}
        styles = tensor_styles(self.part) if self.case.split.tensor > 1 else {}
        for name, (style, dim) in styles.items():
            if name in named:
                named[name] = put_together(self._of_all("tp", named[name]), style, dim)
        return to_arrays(named)

    def _of_all(self, axis: str, own: torch.Tensor) -> list[torch.Tensor]:
        """Return the same tensor of every rank along an axis, in their order."""
        import torch
        import torch.distributed as dist

        group = self.mesh.get_group(axis)
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, own.contiguous(), group=group)
        return parts


def _weighted_loss(outputs: Any, weights: torch.Tensor) -> torch.Tensor:
    """Return the loss of one microbatch, whose weights of all outputs are concatenated."""
    several = outputs if isinstance(outputs, tuple | list) else (outputs,)
    return (_concatenate([one for one in several if one.is_floating_point()]) * weights).sum()


def _concatenate(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return tensors of one batch as one, a row for each example: torch's schedules split a single target."""
    import torch

    return torch.cat([one.reshape(one.shape[0], -1) for one in tensors], dim=1)


def _group_name(value: Any) -> str:
    """Return the name of the process group that an argument of an operator is; empty for other arguments."""
    if isinstance(value, str):
        return value
    try:
        from torch.distributed import ProcessGroup

        return str(ProcessGroup.unbox(value).group_name)
    except Exception:  # torch raises in several ways if it isn't a group
        return ""
