"""Models shared by threads below a budget of memory: each is loaded once, and the least recently used goes.

`python examples/shared_models.py --device cpu --budget-mb 24` serves six tiny BERTs, of which not all fit.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from transformers import BertConfig, BertModel

from hwcompat.plugins.placement.pool import ResourcePool

SIZES = (64, 128, 192, 256, 320, 384)


def build(width: int) -> BertModel:
    """A BERT of two layers with random weights."""
    config = BertConfig(
        vocab_size=2000, hidden_size=width, num_hidden_layers=2, num_attention_heads=4, intermediate_size=4 * width
    )
    return BertModel(config).eval()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget-mb", type=int, default=24)
    options = parser.parse_args()
    pool = ResourcePool(budgets={options.device: options.budget_mb * 10**6})

    def answer(number: int) -> int:
        width = SIZES[number % len(SIZES)]
        # The lease keeps the model while it is used, whatever other threads ask for.
        lease = pool.lease_model("bert", f"bert-{width}", lambda: build(width), device=options.device)
        with lease as model, torch.no_grad():
            tokens = torch.ones(1, 8, dtype=torch.long, device=model.device)
            return int(model(tokens).last_hidden_state.shape[-1])

    calls = [lambda number=number: answer(number) for number in range(48)]
    outcomes = pool.execute_concurrent(calls, max_workers=4)
    right = sum(one.value == SIZES[number % len(SIZES)] for number, one in enumerate(outcomes))
    told = pool.get_stats()
    print(f"{right} of {len(outcomes)} calls were answered by {told['loads']} loads; {told['evictions']} models went")
    for device, one in told["devices"].items():
        print(f"{device}: {one['held_bytes'] / 1e6:.1f} MB held, {one['peak_bytes'] / 1e6:.1f} MB at most")
    for incident in pool.incidents():
        print(f"{incident.kind}: {incident.text}")
    for error in {str(one.error) for one in outcomes if one.error}:
        print(error, file=sys.stderr)
    return 0 if right == len(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
