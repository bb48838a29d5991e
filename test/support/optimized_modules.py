"""Small modules that optimizers are tried on."""

from __future__ import annotations

from typing import Any

import torch

from hardware.testing.seeded_weights import fill

CPU = torch.device("cpu")


class Picture(torch.nn.Module):
    """Two convolutions with normalizations; the output of the second is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.other = torch.nn.BatchNorm2d(8)

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.second(self.norm(self.first(pixel_values)).relu())
        return {"out": self.other(hidden) + hidden}


class Text(torch.nn.Module):
    """A linear layer over another."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 64)
        self.second = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.second(self.first(x).tanh())}


def picture() -> Picture:
    return fill(Picture().eval())


def sample() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.linspace(-1, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)}


def bert(**changes: Any) -> torch.nn.Module:
    import transformers

    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, **changes
    )
    return transformers.BertModel(config)
