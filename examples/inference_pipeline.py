"""Inference for a service: `create_inference_pipeline` puts a model on a target, optimizes it and checks the result.

`python examples/inference_pipeline.py --device auto` serves a tiny BERT.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

from hwcompat.hardware.backends.factory import get_backend
from hwcompat.hardware.errors import BackendUnavailable

Pipeline = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def create_inference_pipeline(
    model: torch.nn.Module, sample: Mapping[str, np.ndarray], *, device: str = "auto", level: str = "O2"
) -> tuple[Pipeline, Any]:
    """A function from arrays to arrays, and what was done to the model (`OptimizationResult`).

    It takes as many rows at a time as the target's settings say. What a level names is kept only where the sample's
    outputs stay right and get faster. Raises `BackendUnavailable` where the target isn't here: nothing runs elsewhere
    instead.
    """
    backend = get_backend(device)
    if reason := backend.unavailable():
        raise BackendUnavailable(f"{backend.target} can't be used", why=reason)
    tensors = {name: torch.as_tensor(array) for name, array in sample.items()}
    ready = backend.prepare_model(model.eval(), level, sample_input=backend.to_device(tensors))
    rows = backend.settings.batch_size.value

    def one(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = backend.to_device({name: torch.as_tensor(array) for name, array in inputs.items()})
        with torch.no_grad():
            outputs = ready(**given)
        return {name: value.float().cpu().numpy() for name, value in outputs.items() if torch.is_tensor(value)}

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        count = len(next(iter(inputs.values())))
        starts = range(0, count, rows)
        found = [one({name: array[start : start + rows] for name, array in inputs.items()}) for start in starts]
        return {name: np.concatenate([part[name] for part in found]) for name in found[0]}

    return run, backend.optimized


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--level", default="O2")
    options = parser.parse_args()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=512, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256
    )
    model = BertForMaskedLM(config).eval()
    tokens = np.random.default_rng(0).integers(5, 512, (2, 32))
    inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    with torch.no_grad():
        plain = model(**{name: torch.as_tensor(array) for name, array in inputs.items()}).logits.numpy()
    pipeline, result = create_inference_pipeline(model, inputs, device=options.device, level=options.level)
    apart = float(np.abs(pipeline(inputs)["logits"] - plain).max() / plain.std())
    print(f"applied: {', '.join(result.optimizations_applied) or 'nothing'}")
    print(f"outputs differ by {apart:.1e} of their scale")
    for warning in result.warnings:
        print(f"left alone: {warning}")
    return 0 if apart < 1e-2 else 1


if __name__ == "__main__":
    raise SystemExit(main())
