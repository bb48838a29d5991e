"""One training loop for every target that torch computes on: `python examples/training_loop.py --device auto`.

A tiny GPT-2 learns one sentence of random tokens. Nothing in the loop names a device.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from hwcompat.hardware.backends.base import BaseBackend
from hwcompat.hardware.backends.factory import get_backend
from hwcompat.hardware.errors import BackendUnavailable


def train(backend: BaseBackend, *, steps: int, seed: int = 0) -> list[float]:
    """The loss of each step, in nats."""
    torch.manual_seed(seed)
    made = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4))
    model = backend.to_device(made).train()
    for part in model.modules():  # losses are the same on every target only without dropout
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    tokens = backend.to_device(torch.randint(0, 64, (2, 16)))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach().cpu()))
    backend.synchronize()
    return losses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    backend = get_backend(options.device)
    if reason := backend.unavailable():
        raise BackendUnavailable(f"{backend.target} can't be used", why=reason)
    losses = train(backend, steps=options.steps)
    for number, loss in enumerate(losses, start=1):
        print(f"step {number:3}  loss {loss:.6f}")
    print(f"{backend.get_device_info().device_name}: {losses[0]:.4f} -> {losses[-1]:.4f}")
    return 0 if losses[-1] < losses[0] else 1


if __name__ == "__main__":
    raise SystemExit(main())
