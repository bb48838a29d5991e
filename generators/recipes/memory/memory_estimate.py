"""`Skeleton`: a model without data that runs in several modes to estimate allocations; and `Stack`: a model of many
equal layers, extrapolated from three shallow ones.

Weights, caches and activations of a forward pass grow linearly with the number of equal layers and are all allocated
after the last of them. Three depths have to lie on a line that leads to the parameters of the whole model. If they
don't, and for training, whose peak may move, the whole model is run.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hwcompat.generators.compatibility.memory_fit import MemoryAnatomy, MemoryEstimate, MemoryRequest
from hwcompat.generators.models.inputs import Specs, make_inputs
from hwcompat.generators.recipes.config_scopes import role_of, tree
from hwcompat.hardware.model.calls import to_tensors, without_cache
from hwcompat.hardware.model.outputs import floating_outputs, nested

from .datafree_mode import DataFree, StorageLog

if TYPE_CHECKING:
    import torch

_LANGUAGE = ("ForCausalLM", "ForMaskedLM", "LMHeadModel", "ForConditionalGeneration")
"""Suffixes of classes that take the text itself as labels."""
Mark = Callable[[Iterable[Any], str], None]
_LEAST_LAYERS = 16
"""Models with fewer layers are run whole."""
_LONGEST_PERIOD = 6
_FIRST_DEPTHS = 4
_ON_A_LINE = 1e-3
"""The largest distance of three depths from a line, as a share of the deepest one's memory."""


def built(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Return the model that `make` builds, with weights as allocated: their values don't matter."""
    with _without_init():
        model = make()
    tie = getattr(model, "tie_weights", None)  # left out with the initialization
    if tie is not None:
        tie()
    return model


@contextlib.contextmanager
def _without_init() -> Iterator[None]:
    for name in ("transformers.initialization", "transformers.modeling_utils"):
        found = getattr(importlib.import_module(name), "no_init_weights", None)
        if found is not None:
            with found():
                yield
            return
    yield


class Skeleton:
    """A model without data, of any size. `make` builds the model as with data."""

    def __init__(self, make: Callable[[], torch.nn.Module]) -> None:
        self._mode = DataFree(StorageLog())
        with warnings.catch_warnings(), self._mode.mode():
            warnings.simplefilter("ignore")
            self.model = built(make)
        _strip(self.model, dtype_of("float32"), self._mode)

    @contextlib.contextmanager
    def asked(self) -> Iterator[torch.nn.Module]:
        """Yield the model to inspect its inputs, which may run it."""
        with self._mode.mode():
            yield self.model

    def estimate(self, request: MemoryRequest, specs: Specs, lengths: Sequence[int]) -> MemoryEstimate:
        """Return the peak memory of `request`, with the inputs of `specs` for rows of `lengths`.

        Raise any error of the modeling code, and `NeedsData` if it reads values that only computing gives.
        """
        mode = self._mode
        mode.storages = storages = StorageLog()
        model = self.model.train(request.mode == "training")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _strip(model, dtype_of(request.precision), mode)
            tensors = to_tensors(make_inputs(specs, 0, lengths), "cpu", dtype_of(request.precision))
            tensors = {n: mode.without_data(t) if t.is_floating_point() else t for n, t in tensors.items()}
            storages.track([*model.parameters(), *model.buffers()], "weights")
            storages.track(tensors.values(), "inputs")
            with mode.mode():
                kept = run(model, tensors, request.mode, storages.track)
        found = storages.at_peak()
        del kept
        model.zero_grad(set_to_none=True)
        return MemoryEstimate(request=request, **found)

    @property
    def parameters(self) -> int:
        """The number of parameters, each counted once."""
        return sum(one.numel() for one in self.model.parameters())

    def anatomy(self) -> MemoryAnatomy:
        """Return the numbers of parameters that estimates of changed models use."""
        import torch

        model = self.model
        head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        head_weight = getattr(head, "weight", None)
        tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
        matrices = [
            one.numel()
            for name, one in model.named_parameters()
            if one.dim() in (2, 3) and one is not head_weight and id(one) not in tables and _is_linear(model, name)
        ]
        stacks = [list(m) for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) > 1]
        outer = _outermost(stacks)
        blocks = [sum(p.numel() for p in layer.parameters()) for stack in outer for layer in stack]
        total = self.parameters
        return MemoryAnatomy(
            parameters=total,
            linear=sum(matrices),
            largest=max(matrices, default=0),
            block=max(blocks, default=total),
            beside=max(total - sum(blocks), 0) if blocks else 0,
        )


def _is_linear(model: torch.nn.Module, name: str) -> bool:
    """Return whether a parameter is the matrix of a linear layer, or those of experts."""
    import torch

    owner = model.get_submodule(name.rpartition(".")[0])
    experts = "expert" in name or "Expert" in type(owner).__name__
    return isinstance(owner, torch.nn.Linear) or type(owner).__name__ == "Conv1D" or experts


def _outermost(stacks: list[list[torch.nn.Module]]) -> list[list[torch.nn.Module]]:
    """Return the lists of layers that aren't inside a layer of another list."""
    inside = {id(m) for stack in stacks for layer in stack for m in layer.modules() if m is not layer}
    return [stack for stack in stacks if not any(id(layer) in inside for layer in stack)]


def _strip(model: torch.nn.Module, dtype: torch.dtype, mode: DataFree) -> None:
    """Set the precision of parameters and drop their data in place. Buffers keep their small data, since code
    makes whole numbers of some."""
    import torch

    known: dict[int, Any] = {}
    with mode.sizes:
        for module in model.modules():
            for name, one in module._parameters.items():
                if one is not None and id(one) not in known:
                    wanted = dtype if one.is_floating_point() else one.dtype
                    bare = torch.empty_strided(one.shape, one.stride(), dtype=wanted)
                    known[id(one)] = (torch.nn.Parameter(bare, requires_grad=one.requires_grad), one)
                module._parameters[name] = known[id(one)][0] if one is not None else None
    for module in model.modules():
        for name, one in module._buffers.items():
            if one is not None and one.is_floating_point():
                module._buffers[name] = one.to(dtype)


def dtype_of(precision: str) -> torch.dtype:
    """Return the torch dtype of a precision."""
    import torch

    found: torch.dtype = getattr(torch, precision)
    return found


def run(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], mode: str, mark: Mark) -> Any:
    """Run `model` once; `mark` is called with the tensors of gradients, optimizer and cache.

    `inference` is one forward pass without a cache. `generation` reads the whole text into a cache, with results for
    its last place alone if the model can omit the others, and decodes one token. `training` is the second step of
    AdamW, since its state exists from the first one on.
    """
    import torch

    if mode == "training":
        return _train(model, tensors, mark)
    with torch.no_grad():
        if mode == "inference":
            return model(**nested(tensors), **without_cache(model))
        return _decode(model, tensors, mark)


def _decode(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], mark: Mark) -> Any:
    import torch

    takes = inspect.signature(model.forward).parameters
    given = dict(nested(tensors))
    given |= {"use_cache": True} | ({"logits_to_keep": 1} if "logits_to_keep" in takes else {})
    output = model(**given)
    cache = output.past_key_values
    if cache is None:
        raise ValueError("the model returns no cache")
    mark(_cached(cache), "cache")
    name = "decoder_input_ids" if "decoder_input_ids" in given else "input_ids"
    text = given[name]
    following: dict[str, Any] = {name: text[:, -1:], "past_key_values": cache, "use_cache": True}
    if name == "input_ids" and "attention_mask" in given:
        mask = given["attention_mask"]
        following["attention_mask"] = torch.cat([mask, mask[:, -1:]], dim=1)
    if "encoder_last_hidden_state" in output:
        following["encoder_outputs"] = (output.encoder_last_hidden_state,)
    output = model(**following)
    mark(_cached(output.past_key_values), "cache")
    return output


def _cached(cache: Any) -> Iterable[torch.Tensor]:
    """Return the tensors of a cache of any class."""
    import torch
    from torch.utils._pytree import tree_leaves

    seen: set[int] = set()
    left = [cache]
    while left:
        one = left.pop()
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, list | tuple | dict):
            left += tree_leaves(one)
        elif hasattr(one, "__dict__") and id(one) not in seen and not isinstance(one, type):
            seen.add(id(one))
            left += vars(one).values()


def _train(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], mark: Mark) -> Any:
    import torch
    from torch.utils._pytree import tree_leaves

    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        loss = _loss(model, tensors)
        loss.backward()
        mark((one.grad for one in trained if one.grad is not None), "gradients")
        optimizer.step()
        mark(
            (one for one in tree_leaves(optimizer.state_dict()["state"]) if isinstance(one, torch.Tensor)),
            "optimiser",
        )
    return loss


def _loss(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return the model's own language loss, else the mean square of all outputs."""
    labels = tensors.get("decoder_input_ids", tensors.get("input_ids"))
    takes = inspect.signature(model.forward).parameters
    if labels is not None and "labels" in takes and type(model).__name__.endswith(_LANGUAGE):
        return model(**nested(tensors), labels=labels, **without_cache(model)).loss
    outputs = floating_outputs(model(**nested(tensors), **without_cache(model)))
    return sum(one.float().square().mean() for one in outputs.values() if one.requires_grad)


class Stack:
    """A model that `make` builds from a configuration."""

    def __init__(self, config: Any, make: Callable[[Any], torch.nn.Module]) -> None:
        self._config, self._make = config, make
        self._depth, self._step = depths_of(config)
        self._at = functools.cache(lambda depth: Skeleton(lambda: make(with_layers(config, self._depth, depth))))

    @functools.cached_property
    def whole(self) -> Skeleton:
        """The model in its full depth."""
        return Skeleton(lambda: self._make(copy.deepcopy(self._config)))

    @functools.cached_property
    def _depths(self) -> tuple[int, ...]:
        """Three depths at equal distances whose numbers of parameters lead to that of the whole model; none if no
        three do. The first layers may be of another kind, so the first depth is varied."""
        for first in range(self._step, (_FIRST_DEPTHS + 1) * self._step, self._step or 1):
            depths = (first, first + self._step, first + 2 * self._step)
            if depths[-1] < self._depth:
                counts = [self._at(depth).parameters for depth in depths]
                if self._extended(depths, counts) == self.whole.parameters:
                    return depths
        return ()

    @property
    def least(self) -> Skeleton:
        """The model in the smallest depth: it takes the same inputs."""
        return self._at(self._step) if self._step else self.whole

    def estimate(self, request: MemoryRequest, specs: Specs, lengths: Sequence[int]) -> MemoryEstimate:
        """As `Skeleton.estimate`."""
        if request.mode != "training" and self._depths:
            found = [self._at(depth).estimate(request, specs, lengths) for depth in self._depths]
            if on_a_line([one.total for one in found]):
                names = found[0].parts
                parts = {name: self._extended(self._depths, [one.parts[name] for one in found]) for name in names}
                return MemoryEstimate(request=request, **parts)
        return self.whole.estimate(request, specs, lengths)

    def _extended(self, depths: Sequence[int], values: Sequence[int]) -> int:
        """Return the value at the full depth, from values at some depths."""
        a_layer = (values[-1] - values[0]) / (depths[-1] - depths[0])
        return round(values[-1] + a_layer * (self._depth - depths[-1]))


def on_a_line(values: Sequence[int]) -> bool:
    """Return whether three values at equal distances lie on a line."""
    first, middle, last = values
    return abs(first + last - 2 * middle) <= _ON_A_LINE * last


def depths_of(config: Any) -> tuple[int, int]:
    """Return the number of layers of a configuration's deepest stacks, and the step between smaller numbers to
    extrapolate from; 0 if the model isn't deep, has stacks of other depths, or layers that don't repeat."""
    counts = {
        value for scope in tree(config) for value in role_of(scope, "layers").values() if isinstance(value, int)
    }
    deep = [count for count in counts if count >= _LEAST_LAYERS]
    if len(deep) != 1:
        return max(counts, default=0), 0
    depth = deep[0]
    lists = [one for scope in tree(config) for one in _lists(scope, depth).values()]
    for period in range(1, _LONGEST_PERIOD + 1):
        repeats = all(one[place] == one[place % period] for one in lists for place in range(depth))
        step = period if period > 1 else 2
        if repeats and depth % period == 0 and depth > 3 * step:
            return depth, step
    return depth, 0


def _lists(scope: Any, depth: int) -> dict[str, list[Any]]:
    return {n: list(one) for n, one in vars(scope).items() if isinstance(one, list | tuple) and len(one) == depth}


def with_layers(config: Any, depth: int, wanted: int) -> Any:
    """Return a copy of a configuration with `wanted` layers in the stacks of `depth`."""
    shallow = copy.deepcopy(config)
    for scope in tree(shallow):
        for name, one in _lists(scope, depth).items():
            setattr(scope, name, one[:wanted])
        for name, value in role_of(scope, "layers").items():
            if value == depth:
                setattr(scope, name, wanted)
    return shallow
