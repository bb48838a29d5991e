"""Hooks on all modules of a model: what each was given and gave is kept, or compared with what was kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hardware.model.tensors import to_arrays

from .comparing import error_of
from .nested import changed_arguments, changed_output, tensors_given, tensors_given_back

if TYPE_CHECKING:
    import torch

    from hardware.compare import Array

Key = tuple[str, int]
"""A module's name and which of its calls."""


@dataclass(kw_only=True)
class Call:
    """What one call of a module was given and gave in the reference: tensors by name."""

    kind: str
    given: dict[str, torch.Tensor]
    gave: dict[str, torch.Tensor] = field(default_factory=dict)
    largest: float = 0.0
    in_place: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """One comparison, in the order of the run: what the module `key` handed to a part, or gave."""

    key: Key
    kind: str
    tensor: str
    error: float | None
    got: torch.Tensor
    want: torch.Tensor
    gave: bool


class Watch:
    """Hooks on all modules of a model, for one pass."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.names = {id(module): name for name, module in model.named_modules()}
        self.counts: Counter[str] = Counter()
        self.stack: list[Key] = []
        self._model = model
        self._handles: list[Any] = []

    def __enter__(self) -> Any:
        for module in self._model.modules():
            # First of all before, and last of all after: what other hooks change belongs to the module.
            before = module.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True)
            self._handles += [before, module.register_forward_hook(self._after, with_kwargs=True)]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: Any, args: Any, kwargs: Any) -> Any:
        name = self.names[id(module)]
        key = (name, self.counts[name])
        self.counts[name] += 1
        changed = self.enter(key, module, args, kwargs)
        self.stack.append(key)
        return changed

    def _after(self, module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        return self.leave(self.stack.pop(), module, args, kwargs, output)

    def enter(self, key: Key, module: Any, args: Any, kwargs: Any) -> Any:
        raise NotImplementedError

    def leave(self, key: Key, module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        raise NotImplementedError


class Recorder(Watch):
    """Keeps what each module of the reference was given and gave."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.calls: dict[Key, Call] = {}
        self._versions: dict[Key, list[tuple[Any, int]]] = {}

    def enter(self, key: Key, module: Any, args: Any, kwargs: Any) -> None:
        live = tensors_given(module, args, kwargs)
        self._versions[key] = [(one, one._version) for one in live.values()]
        given = {name: one.detach().clone() for name, one in live.items()}
        self.calls[key] = Call(kind=type(module).__name__, given=given)

    def leave(self, key: Key, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        call = self.calls[key]
        call.in_place = any(one._version != before for one, before in self._versions.pop(key))
        call.gave = {name: one.detach().clone() for name, one in tensors_given_back(output).items()}
        call.largest = max((_largest(one) for one in (*call.given.values(), *call.gave.values())), default=0.0)


class Comparer(Watch):
    """Compares a pass with what was recorded, and with `corrected` gives every module the reference's values."""

    def __init__(
        self,
        model: torch.nn.Module,
        calls: Mapping[Key, Call],
        *,
        precision: str,
        tolerance: float,
        padding: Sequence[Array],
        finite: bool,
        corrected: bool,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(model)
        self.calls, self.corrected, self.progress = calls, corrected, progress
        self.steps: list[Step] = []
        self.left_out: set[Key] = set()
        self._how: dict[str, Any] = {
            "precision": precision,
            "tolerance": tolerance,
            "padding": padding,
            "finite": finite,
        }
        self._kinds = {name: type(module).__name__ for name, module in model.named_modules()}

    def enter(self, key: Key, module: Any, args: Any, kwargs: Any) -> Any:
        self.progress(key[0])
        given = tensors_given(module, args, kwargs)
        call = self.calls.get(key)
        if call is None or any(given[n].shape != one.shape for n, one in call.given.items() if n in given):
            self.left_out.add(key)  # both sides go other ways here, as through experts one by one and all at once
            return None
        owner = self.stack[-1] if self.stack else None
        if owner is not None:
            label = f"{{}} that it hands to {key[0].removeprefix(f'{owner[0]}.')}"
            self._hold(owner, label, given, call.given, call.largest, gave=False)
        if not self.corrected or call.in_place:
            return None
        return changed_arguments(module, args, kwargs, _from(call.given))

    def leave(self, key: Key, module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        self.progress(self.stack[-1][0] if self.stack else "")
        call = self.calls.get(key)
        if call is None or key in self.left_out:
            return None
        self._hold(key, "{}", tensors_given_back(output), call.gave, call.largest, gave=True)
        return changed_output(output, _from(call.gave)) if self.corrected else None

    def _hold(self, key: Key, label: str, got: Any, want: Any, largest: float, *, gave: bool) -> None:
        for name, one in got.items():
            if name not in want:
                continue
            wanted = want[name]
            pair = (to_arrays({"": one})[""], to_arrays({"": wanted})[""])
            error = error_of(*pair, largest=largest, **self._how)
            self.steps.append(
                Step(
                    key=key,
                    kind=self._kinds[key[0]],
                    tensor=label.format(name),
                    error=error,
                    got=one,
                    want=wanted,
                    gave=gave,
                )
            )


def _from(wanted: Mapping[str, torch.Tensor]) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """The reference's tensor of the same name and shape, on the device and in the dtype of what it stands for."""

    def change(name: str, one: torch.Tensor) -> torch.Tensor:
        want = wanted.get(name)
        return one if want is None or want.shape != one.shape else _like(want, one)

    return change


def _like(want: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    import torch

    if want.is_floating_point() and one.is_floating_point():  # the smallest number of a dtype rules something out
        smallest = want == torch.finfo(want.dtype).min
        return want.to(one.dtype).masked_fill(smallest, torch.finfo(one.dtype).min).to(one.device)
    return want.to(one.dtype).to(one.device) if want.is_floating_point() == one.is_floating_point() else one


def _largest(tensor: torch.Tensor) -> float:
    if not tensor.is_floating_point() or not tensor.numel():
        return 0.0
    finite = tensor[tensor.isfinite()]
    found = float(finite.abs().max()) if finite.numel() else 0.0
    return found if found < 1e30 else 0.0  # a mask's number is no value that is summed
