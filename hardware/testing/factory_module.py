"""A user's module and its example, as a factory returns them: called with arrays by name, with outputs by name.

Arguments and outputs may be nested in dicts, lists, tuples and dataclasses; a number, a text or None among the
arguments stays what it is.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compare import Array
from ..errors import ModelError, echo
from ..model.calls import in_dtype, without_cache
from ..model.outputs import COMPLEX_PARTS, is_nest, named_outputs, parts_of

if TYPE_CHECKING:
    import torch

HOW = (
    "Return (module, inputs) from the factory, or define example_inputs in its Python module: the arguments of "
    'forward, by name or in their order, such as {"x": torch.zeros(2, 3)} or (torch.zeros(2, 3),).'
)
_AS_IT_IS = (bool, int, float, str, type(None))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactoryModule:
    """`model` takes tensors by name and returns tensors by name, in float32 and evaluation mode; `inputs` are the
    example's arrays, and `paired` says that the factory returned them. `dtypes` are the floating-point types of the
    factory's module, `trains` its kinds of layers that were in training mode and compute otherwise in it."""

    model: torch.nn.Module
    inputs: dict[str, Array]
    dtypes: tuple[str, ...]
    trains: tuple[str, ...]
    paired: bool


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """The place of a tensor in nested arguments, by the name of its array; a complex one has two arrays."""

    name: str
    is_complex: bool


def from_factory(make: Callable[[], Any], example: Any = None, *, keeps_state: bool = False) -> FactoryModule:
    """Return the module and example of `make`, a factory without arguments that is called with seeded random numbers;
    `example` is used if it returns a module alone. With `keeps_state`, each call begins in the state that the module
    has before its first.

    Raises `ModelError` if they aren't a module and arguments of its forward, and what `make` raises.
    """
    import torch

    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    made = make()
    paired = isinstance(made, tuple) and len(made) == 2
    if paired:
        made, example = made
    elif callable(example):
        example = example()
    if not isinstance(made, torch.nn.Module):
        raise ModelError(
            f"the factory returned a {echo(type(made).__name__)}, not a module",
            fix="Name a function that returns a torch.nn.Module.",
        )
    if example is None:
        raise ModelError("the inputs of the module are unknown", why="there are no example inputs", fix=HOW)
    with contextlib.suppress(Exception):  # what can't be copied is used itself
        made = copy.deepcopy(made)  # a factory may return the same module each time
    arrays: dict[str, Array] = {}
    arguments = {name: _places(value, name, arrays) for name, value in _by_argument(made, example).items()}
    if not arrays:
        raise ModelError("the example inputs have no tensor", why="there is nothing to vary", fix=HOW)
    floats = (one for one in (*made.parameters(), *made.buffers()) if one.is_floating_point())
    dtypes = tuple(sorted({str(one.dtype).removeprefix("torch.") for one in floats}))
    trains = tuple(sorted({type(one).__name__ for one in made.modules() if _depends_on_mode(one)}))
    made = in_dtype(made, torch.float32).eval()
    if not any(one.requires_grad for one in made.parameters()):
        made.requires_grad_()  # the gradients of frozen weights are compared too
    plain = all(isinstance(one, _Leaf) and not one.is_complex for one in arguments.values())
    if not (hasattr(made, "save_pretrained") and plain and not keeps_state):  # a library's own model is one already
        made = _called_by_name(made, arguments, keeps_state).eval()
    return FactoryModule(model=made, inputs=arrays, dtypes=dtypes, trains=trains, paired=paired)


def _depends_on_mode(module: Any) -> bool:
    code = getattr(type(module).forward, "__code__", None)
    is_read = code is not None and "training" in code.co_names
    return bool(module.training and is_read and getattr(module, "p", getattr(module, "dropout", 1)) != 0)


def _by_argument(module: torch.nn.Module, example: Any) -> dict[str, Any]:
    """Return the values of an example by the arguments of forward. Raises `ModelError` if they aren't its own."""
    signature = inspect.signature(module.forward)
    if isinstance(example, Mapping):
        args, kwargs = (), {str(name): value for name, value in example.items()}
    else:
        args, kwargs = tuple(example) if isinstance(example, tuple | list) else (example,), {}
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise ModelError(
            f"the example inputs don't fit forward: {error}", why=f"its arguments are {known}", fix=HOW
        ) from error
    found: dict[str, Any] = {}
    for name, value in bound.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def _places(value: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Return nested arguments with places instead of tensors, whose arrays are added to `arrays`."""
    import torch

    if isinstance(value, torch.Tensor | np.ndarray):
        tensor = torch.as_tensor(value).detach().cpu()
        if tensor.is_complex():
            arrays[name + COMPLEX_PARTS[0]], arrays[name + COMPLEX_PARTS[1]] = (
                one.float().numpy() for one in (tensor.real, tensor.imag)
            )
        else:
            arrays[name] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
        return _Leaf(name, tensor.is_complex())
    if _is_nest(value):
        return _with_parts(
            value, {key: _places(one, _named(name, key, arrays), arrays) for key, one in parts_of(value)}
        )
    if not isinstance(value, _AS_IT_IS):
        raise ModelError(
            f"the example input {echo(name)} can't be used",
            why=f"its type is {type(value).__name__}",
            fix="Give tensors, numbers, texts or None, or dicts, lists, tuples and dataclasses of them.",
        )
    return value


def _named(name: str, key: Any, taken: Mapping[str, Any]) -> str:
    found = f"{name}_{re.sub(r'[^A-Za-z0-9_]', '_', str(key))}"
    while found in taken or found + COMPLEX_PARTS[0] in taken:
        found += "_"
    return found


def _is_nest(value: Any) -> bool:
    return is_nest(value) and not isinstance(value, _Leaf)


def _with_parts(value: Any, parts: Mapping[Any, Any]) -> Any:
    """Return a dict, list, tuple or dataclass like `value` with other parts."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*parts.values())
    if isinstance(value, tuple | list):
        return type(value)(parts.values())
    changed = copy.copy(value)
    for key, part in parts.items():
        if isinstance(value, Mapping):
            changed[key] = part
        else:
            object.__setattr__(changed, key, part)
    return changed


def _filled(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return nested arguments with tensors at their places."""
    import torch

    if isinstance(value, _Leaf):
        if not value.is_complex:
            return tensors[value.name]
        real, imag = (tensors[value.name + part] for part in COMPLEX_PARTS)
        return torch.complex(real, imag)
    if not _is_nest(value):
        return value
    return _with_parts(value, {key: _filled(one, tensors) for key, one in parts_of(value)})


def _called_by_name(module: torch.nn.Module, arguments: Mapping[str, Any], keeps_state: bool) -> torch.nn.Module:
    """Return a module that takes the tensors of `arguments` by name and returns those of its outputs by name."""
    import torch

    kinds = {name: one.kind for name, one in inspect.signature(module.forward).parameters.items()}
    in_order: set[Any] = {inspect.Parameter.POSITIONAL_ONLY}
    if inspect.Parameter.VAR_POSITIONAL in kinds.values():
        in_order.add(inspect.Parameter.POSITIONAL_OR_KEYWORD)

    class CalledByName(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.arguments = dict(arguments)

        def forward(self, **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
            args: list[Any] = []
            kwargs: dict[str, Any] = without_cache(self.module)
            for name, value in self.arguments.items():
                kind, filled = kinds.get(name), _filled(value, tensors)
                if kind is inspect.Parameter.VAR_POSITIONAL:
                    args += filled
                elif kind in in_order:
                    args.append(filled)
                else:
                    kwargs[name] = filled
            if not keeps_state:
                return dict(named_outputs(self.module(*args, **kwargs)))
            with state_restored(self.module):
                return dict(named_outputs(self.module(*args, **kwargs)))

        def double(self) -> Any:
            wide = super().double()
            return wide._apply(lambda one: one.to(torch.complex128) if one.is_complex() else one)

    return CalledByName()


@contextlib.contextmanager
def state_restored(model: torch.nn.Module) -> Iterator[None]:
    """Let `model` forget what its modules change in their buffers and other attributes meanwhile."""
    import torch

    torchs_own = vars(torch.nn.Module()).keys()
    before = [
        (module, dict(module._buffers), {name: one for name, one in vars(module).items() if name not in torchs_own})
        for module in model.modules()
    ]
    for module, buffers, own in before:  # the module changes copies
        module._buffers.update({name: _copied(one) for name, one in buffers.items()})
        vars(module).update({name: _copied(one) for name, one in own.items()})
    try:
        yield
    finally:
        for module, buffers, own in before:
            module._buffers.clear()
            module._buffers.update(buffers)
            for name in vars(module).keys() - torchs_own:
                del vars(module)[name]
            vars(module).update(own)


def _copied(value: Any) -> Any:
    """Return a copy of tensors, containers and records; anything else that can't be copied is returned itself."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.clone()
    if type(value) in (dict, list, tuple):
        return _with_parts(value, {key: _copied(one) for key, one in parts_of(value)})
    with contextlib.suppress(Exception):
        return copy.deepcopy(value)
    return value
