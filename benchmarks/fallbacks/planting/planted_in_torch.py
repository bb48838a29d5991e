"""Fallbacks on a torch device: work of modeling code, wrappers and drivers on the host."""

from __future__ import annotations

import copy
import os
from types import ModuleType
from typing import Any

from planting_tools import after_import, took_effect, wrap

_BERT = "transformers.models.bert.modeling_bert"
_DEVICE = os.environ.get("HWCOMPAT_PLANT_DEVICE", "simulated")
"""torch's name of the device. Only the simulated one has a driver that can be changed."""
_PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}


def _on_device(value: Any) -> bool:
    return getattr(getattr(value, "device", None), "type", "") == _DEVICE


def _moved(value: Any, device: Any) -> Any:
    from torch.utils._pytree import tree_map

    return tree_map(lambda one: one.to(device) if hasattr(one, "to") and hasattr(one, "device") else one, value)


def _host_layer(module: Any, args: Any, kwargs: Any) -> Any:
    """Run a module's forward pass on the host with copies of its weights; return results on the input's device."""
    from torch.func import functional_call

    weights = {name: one.cpu() for name, one in (*module.named_parameters(), *module.named_buffers())}
    took_effect()
    result = functional_call(module, weights, _moved(args, "cpu"), _moved(kwargs, "cpu"))
    return _moved(result, args[0].device)


def _layer_on_host(class_name: str, module_name: str = _BERT) -> None:
    @after_import(module_name)
    def patch(module: ModuleType) -> None:
        @wrap(getattr(module, class_name), "forward")
        def forward(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            return _host_layer(self, args, kwargs) if _on_device(args[0]) else original(self, *args, **kwargs)


def _launch(change: Any) -> None:
    """Replace the driver's products by `change(operator, args, kwargs, launch)`."""

    @after_import("hwcompat.hardware.backends.simulated")
    def patch(module: ModuleType) -> None:
        @wrap(module.SimulatedDriver, "launch")
        def launch(original: Any, self: Any, operator: Any, args: Any, kwargs: Any) -> Any:
            if operator._schema.name not in _PRODUCTS:
                return original(self, operator, args, kwargs)
            took_effect()
            return change(operator, args, kwargs, lambda: original(self, operator, args, kwargs))


def _after_moving(change: Any) -> None:
    """Call `change(module)` after a model of the library was moved to the device."""

    @after_import("transformers.modeling_utils")
    def patch(module: ModuleType) -> None:
        @wrap(module.PreTrainedModel, "to")
        def to(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            moved = original(self, *args, **kwargs)
            if _DEVICE in f"{args}{kwargs}":
                took_effect()
                change(moved)
            return moved


def tensor_on_host() -> None:
    _layer_on_host("BertIntermediate")


def kernel_on_host() -> None:
    _launch(lambda operator, args, kwargs, launch: operator(*args, **kwargs))


def everything_on_host() -> None:
    import torch

    def stays(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if _DEVICE not in f"{args}{kwargs.get('device', '')}":
            return original(self, *args, **kwargs)
        took_effect()
        left = [one for one in args if _DEVICE not in str(one)]
        given = {name: one for name, one in kwargs.items() if name != "device" and one is not None}
        return original(self, *left, **given) if left or given else self

    wrap(torch.nn.Module, "to")(stays)
    wrap(torch.Tensor, "to")(stays)


def last_layer_on_host() -> None:
    def leave(model: Any) -> None:
        layer = model.bert.encoder.layer[-1].to("cpu")
        layer.register_forward_pre_hook(
            lambda _, args, kwargs: (_moved(args, "cpu"), _moved(kwargs, "cpu")), with_kwargs=True
        )
        layer.register_forward_hook(lambda _, args, output: _moved(output, f"{_DEVICE}:0"))

    _after_moving(leave)


def weights_streamed() -> None:
    def leave(model: Any) -> None:
        layer = model.bert.encoder.layer[-1].to("cpu")
        layer.register_forward_pre_hook(lambda layer, args: layer.to(f"{_DEVICE}:0") and None)
        layer.register_forward_hook(lambda layer, args, output: layer.to("cpu") and None)

    _after_moving(leave)


def copy_of_model_on_host() -> None:
    def answer(model: Any) -> None:
        second = copy.deepcopy(model).to("cpu")

        def forward(*args: Any, **kwargs: Any) -> Any:
            output = second(*_moved(args, "cpu"), **_moved(kwargs, "cpu"))
            return type(output)(**{name: _moved(one, f"{_DEVICE}:0") for name, one in output.items()})

        forward.__signature__ = __import__("inspect").signature(model.forward)  # type: ignore[attr-defined]
        model.forward = forward

    _after_moving(answer)


def numpy_inside() -> None:
    import torch

    @after_import(_BERT)
    def patch(module: ModuleType) -> None:
        @wrap(module.BertSelfOutput, "forward")
        def forward(original: Any, self: Any, hidden_states: Any, input_tensor: Any) -> Any:
            if _on_device(hidden_states):
                took_effect()
                numbers = hidden_states.detach().cpu().numpy() * 1.0
                hidden_states = hidden_states + (torch.from_numpy(numbers).to(hidden_states) - hidden_states.detach())
            return original(self, hidden_states, input_tensor)


def embedding_on_host() -> None:
    import torch

    @wrap(torch.nn.functional, "embedding")
    def embedding(original: Any, given: Any, weight: Any, *args: Any, **kwargs: Any) -> Any:
        if not _on_device(weight):
            return original(given, weight, *args, **kwargs)
        took_effect()
        return original(given.cpu(), weight.cpu(), *args, **kwargs).to(weight.device)


def backward_on_host() -> None:
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: Any, weight: Any, bias: Any) -> Any:
            ctx.save_for_backward(given, weight, bias)
            return linear(given, weight, bias)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            took_effect()
            given, weight, _ = (one if one is None else one.cpu() for one in ctx.saved_tensors)
            wide = gradient.cpu()
            rows, inputs = wide.reshape(-1, wide.shape[-1]), given.reshape(-1, given.shape[-1])
            found = (wide @ weight, rows.T @ inputs, rows.sum(0) if ctx.saved_tensors[2] is not None else None)
            return tuple(one if one is None else one.to(gradient.device) for one in found)

    linear = torch.nn.functional.linear

    @wrap(torch.nn.Linear, "forward")
    def forward(original: Any, self: Any, given: Any) -> Any:
        return Product.apply(given, self.weight, self.bias) if _on_device(given) else original(self, given)


def decoding_on_host() -> None:
    @after_import("transformers.pytorch_utils")
    def patch(module: ModuleType) -> None:
        @wrap(module.Conv1D, "forward")
        def forward(original: Any, self: Any, given: Any) -> Any:
            step = _on_device(given) and given.shape[-2] == 1
            return _host_layer(self, (given,), {}) if step else original(self, given)


def retry_on_host() -> None:
    @after_import("hwcompat.hardware.backends.simulated")
    def lacks(module: ModuleType) -> None:
        @wrap(module.SimulatedDriver, "has_kernel")
        def has_kernel(original: Any, self: Any, name: str) -> bool:
            return name != "aten::gelu" and bool(original(self, name))

    @after_import(_BERT)
    def patch(module: ModuleType) -> None:
        @wrap(module.BertIntermediate, "forward")
        def forward(original: Any, self: Any, given: Any) -> Any:
            try:
                return original(self, given)
            except NotImplementedError:
                return _host_layer(self, (given,), {})

        @wrap(module.BertPredictionHeadTransform, "forward")
        def head(original: Any, self: Any, given: Any) -> Any:
            try:
                return original(self, given)
            except NotImplementedError:
                return _host_layer(self, (given,), {})


def second_row_on_host() -> None:
    import torch

    @after_import(_BERT)
    def patch(module: ModuleType) -> None:
        @wrap(module.BertIntermediate, "forward")
        def forward(original: Any, self: Any, given: Any) -> Any:
            if not _on_device(given) or given.shape[0] < 2:
                return original(self, given)
            return torch.cat([original(self, given[:1]), _host_layer(self, (given[1:],), {})])


def first_output_again() -> None:
    @after_import(_BERT)
    def patch(module: ModuleType) -> None:
        kept: dict[Any, Any] = {}

        @wrap(module.BertForMaskedLM, "forward")
        def forward(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            given = kwargs.get("input_ids")
            if not _on_device(given):
                return original(self, *args, **kwargs)
            key = tuple(given.shape)
            if key in kept:
                took_effect()
            return kept.setdefault(key, original(self, *args, **kwargs) if key not in kept else None)


def zeros() -> None:
    _launch(lambda operator, args, kwargs, launch: launch().zero_())


def bfloat16_inside() -> None:
    import torch

    def narrow(operator: Any, args: Any, kwargs: Any, launch: Any) -> Any:
        launch()
        given = [one.to(torch.bfloat16) if isinstance(one, torch.Tensor) else one for one in args]
        return operator(*given, **kwargs).float()

    _launch(narrow)


def autocast_left_on() -> None:
    import torch

    @after_import(_BERT)
    def patch(module: ModuleType) -> None:
        @wrap(module.BertForMaskedLM, "forward")
        def forward(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            if not _on_device(kwargs.get("input_ids")):
                return original(self, *args, **kwargs)
            took_effect()
            with torch.autocast(_DEVICE, dtype=torch.bfloat16):
                return original(self, *args, **kwargs)
