"""Describe as text what a model's modules hold besides tensors, since a forward pass may compute with it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

_ORIGIN = frozenset({"name_or_path"})
"""Attributes in which a library notes a model's origin: a folder that moved holds the same model."""


def attributes_of(model: torch.nn.Module) -> Iterator[str]:
    """Yield a line for each module of `model` with its class, and one for each attribute that torch's own modules
    don't have. The order is the same in any process for each model that was made alike. Numbers, texts, arrays,
    functions and containers of them are included completely; of other objects only the class is."""
    import torch

    torchs_own = {*vars(torch.nn.Module()), *_ORIGIN}
    for place, module in model.named_modules():
        yield f"{place}: {_name_of(type(module))}"
        for name, value in sorted(vars(module).items()):
            if name not in torchs_own and not isinstance(value, torch.Tensor):  # tensors are hashed as such
                yield f"{place}.{name} = {described(_without_random_order(module, value))}"


def _without_random_order(module: torch.nn.Module, value: Any) -> Any:
    """Return `value`, or the set of words in a list. transformers makes lists from sets of words, in another order in
    each process. Orders that matter are in the configuration."""
    words = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return set(value) if words and type(module).__module__.startswith("transformers.") else value


def described(value: Any, inside: frozenset[int] = frozenset()) -> str:
    """Return `value` as text without addresses, equal for values that are made alike. `inside` are the `id` of the
    containers around it, which aren't described again."""
    if isinstance(value, Enum):
        return f"{_name_of(type(value))}.{value.name}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return f"{type(value).__name__} {value!r}"
    if id(value) in inside:
        return "itself"
    again = functools.partial(described, inside=inside | {id(value)})
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{again(key)}: {again(one)}' for key, one in value.items()))}}}"
    if isinstance(value, AbstractSet):
        return f"{{{', '.join(sorted(map(again, value)))}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} [{', '.join(map(again, value))}]"
    if array := _of_array(value):
        return array
    if function := _of_function(value, again):
        return function
    if isinstance(value, types.SimpleNamespace) or _is_plain_record(value):
        return f"{_name_of(type(value))} {again(vars(value))}"
    return _name_of(type(value))


def _is_plain_record(value: Any) -> bool:
    """Whether it is a dataclass whose fields should be described. A library's configuration is hashed with the
    model's."""
    return dataclasses.is_dataclass(value) and hasattr(value, "__dict__") and not hasattr(value, "to_json_string")


def _of_array(value: Any) -> str:
    """Return dtype, shape and bytes of an array or tensor, the name of a dtype or device, or an empty text."""
    import torch

    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return str(value)
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_meta or value.is_quantized:  # it has no bytes to read
            return f"{value.layout} {value.dtype} {tuple(value.shape)}"
        data = value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        data = value.tobytes()
    else:
        return ""
    return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(data).hexdigest()}"


def _of_function(value: Any, again: Any) -> str:
    """Return the name of a function or class, or the code and values of one without a name of its own (a lambda or an
    inner function). Return an empty text for anything else."""
    if isinstance(value, functools.partial):
        return f"partial {again((value.func, value.args, value.keywords))}"
    if isinstance(value, types.MethodType):
        return f"{again(value.__func__)} of {_name_of(type(value.__self__))}"
    if isinstance(value, types.CodeType):
        return f"code {value.co_code.hex()} {value.co_names} {again(value.co_consts)}"
    if not callable(value) or not hasattr(value, "__qualname__"):
        return ""
    if not isinstance(value, types.FunctionType) or "<" not in value.__qualname__:
        return _name_of(value)
    cells = [one.cell_contents for one in value.__closure__ or () if one != types.CellType()]
    return f"{_name_of(value)} {again((value.__code__, value.__defaults__, value.__kwdefaults__, cells))}"


def _name_of(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
