"""What a model's code leaves to the host is found on the CPU: what is made without a device or read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from generators.recipes.probe_code import host_functions  # noqa: E402

X = torch.ones(2, 3)


class Model(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
    """A weight that moves with the model, and a table that doesn't."""

    def __init__(self, compute: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.compute = compute
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("kept", torch.ones(3))
        self.table = torch.ones(3)

    def forward(self, x: Any) -> Any:
        return self.compute(self, x)


STAYING: dict[str, Callable[[Any, Any], Any]] = {
    "where the input is": lambda m, x: x * m.weight + torch.arange(3, device=x.device),
    "where the weight is": lambda m, x: x + torch.zeros(3, device=m.weight.device) + m.kept,
    "like the input": lambda m, x: x + torch.ones_like(x) + x.new_zeros(3),
    "numbers": lambda m, x: x * torch.tensor(2.0) + x.sum().item(),
    "places on the device": lambda m, x: x[:, torch.tensor([0, 2], device=x.device)],
    "places in a list": lambda m, x: x[:, [0, 2]],
    "where a text says": lambda m, x: x + torch.zeros(3, device=str(x.device)),
    "in place": lambda m, x: x.clone().mul_(2).add_(m.weight),
}
LEAVING: dict[str, tuple[Callable[[Any, Any], Any], set[str]]] = {
    "made anywhere, then moved": (lambda m, x: x + torch.arange(3).to(x.device), {"arange", "to"}),
    "what follows from it": (lambda m, x: x + (torch.ones(3) * 2).to(x), {"ones", "mul", "to"}),
    "made on the host by name": (lambda m, x: x + torch.zeros(3, device="cpu").to(x.device), {"zeros", "to"}),
    "a table that isn't moved": (lambda m, x: x + m.table.type_as(x), {"type_as"}),
    "read back": (lambda m, x: torch.stack([x.sum()] * len(x[0].tolist())), {"tolist"}),
    "sent to the host by a text": (lambda m, x: x.to("cpu") * 2, {"to", "mul"}),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_stays_on_the_device(name: str) -> None:
    model = Model(STAYING[name])
    assert host_functions(model, [X], lambda: model(X)) == ()


@pytest.mark.parametrize("name", LEAVING)
def test_what_is_left_to_the_host(name: str) -> None:
    compute, wanted = LEAVING[name]
    model = Model(compute)
    assert set(host_functions(model, [X], lambda: model(X))) == wanted
