"""Compare the figures of `hwcompat run --measure` with those of optimum-benchmark, on the same models in turns.

Each figure is the median of a process; the note has the 10th and 90th percentile of all calls of both.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.speed_text import Spread

from .processes import ROOT
from .result import Result
from .rivals import HINT

_RIVAL = ROOT / ".venv-rival-optimum-benchmark" / "bin" / "python"
_CALLS, _STEPS = 30, 6
_CLASSES = {
    "fill-mask": "BertForMaskedLM",
    "image-classification": "ViTForImageClassification",
    "text-generation": "GPT2LMHeadModel",
}
_LAYERS = {"num_hidden_layers": 2, "n_layer": 2}
_MODELS: Mapping[str, tuple[str, dict[str, int], Sequence[str]]] = {
    "bert": ("fill-mask", {"sequence_length": 16}, ("batch 1", "batch 4")),
    "vit": ("image-classification", {"num_channels": 3, "height": 224, "width": 224}, ("batch 1",)),
    "gpt2": ("text-generation", {"sequence_length": 16}, ("first token", "per token")),
}
"""By model type: the task, the shape of a row, and the series of `hardware/testing/speed_measurement.py` that both
measure. Real widths and two layers, random weights."""

_CODE = {
    "transformers": """
import json, sys
import transformers
folder, model, name, layers = json.loads(sys.argv[1])[:4]
config = transformers.AutoConfig.for_model(model, architectures=[name], **layers)
getattr(transformers, name)(config).save_pretrained(folder)
print("{}")
""",
    "optimum-benchmark": """
import json, sys
sys.modules["amdsmi"] = None  # it imports amdsmi if that is installed, and fails without AMD's library
from optimum_benchmark import Benchmark, BenchmarkConfig, InferenceConfig, InlineConfig, PyTorchConfig
folder, task, shape, batch, calls, steps = json.loads(sys.argv[1])
generation = {"max_new_tokens": steps, "min_new_tokens": steps} if task == "text-generation" else {}
scenario = InferenceConfig(iterations=calls, duration=0, warmup_runs=3, generate_kwargs=generation,
                           input_shapes={"batch_size": batch, **shape})
backend = PyTorchConfig(task=task, model=folder, library="transformers", device="cpu")
report = Benchmark.launch(BenchmarkConfig(name="x", launcher=InlineConfig(), scenario=scenario, backend=backend))
found = report.to_dict()
values = lambda name: [1e3 * one for one in found[name]["latency"]["values"]]
if generation:
    decode = [one / (steps - 1) for one in values("decode")]
    print(json.dumps({"first token": values("prefill"), "per token": decode}))
else:
    print(json.dumps({f"batch {batch}": values("forward")}))
""",
    "hwcompat": """
import json, sys
import numpy as np
import transformers
from hardware.testing import ModelTest
from hardware.testing import speed_measurement as speed
speed.BATCHES = (1, 4)  # others aren't compared
folder, task, shape, batch, calls, steps = json.loads(sys.argv[1])
config = transformers.AutoConfig.from_pretrained(folder)
model = getattr(transformers, config.architectures[0]).from_pretrained(folder).eval()
if "height" in shape:
    inputs = {"pixel_values": np.random.rand(1, 3, 224, 224).astype(np.float32)}
else:
    ids = np.random.randint(0, config.vocab_size, (1, shape["sequence_length"]))
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
generates = "causal" if task == "text-generation" else "none"
cell = f"{config.model_type}/{task}/cpu/float32"
case = ModelTest(cell, lambda: model, inputs, gain=None, outputs=(), generates=generates)
print(json.dumps(speed.speed_of(case)["ms"]))
""",
}


def measure(runs: int) -> Result:
    """Measure each model with both, in new processes in turns, with the versions that the other tool needs: 0.6.0
    imports `SpecialTokensMixin`, which transformers 5 doesn't have."""
    title = "How fast a model is: `run --measure` and optimum-benchmark"
    if not _RIVAL.exists():
        return Result(title=title, remarks=(f"Not measured: optimum-benchmark isn't installed ({HINT}).",))
    found: list[tuple[bool, str]] = []
    with tempfile.TemporaryDirectory() as name:
        for model, (task, shape, series) in _MODELS.items():
            folder = Path(name) / model
            folder.mkdir()
            _ran("transformers", (str(folder), model, _CLASSES[task], _LAYERS), 1)
            request = (str(folder), task, shape)
            sizes = [int(one.removeprefix("batch ")) for one in series if one.startswith("batch")] or [1]
            ours, theirs = [], []
            for _ in range(runs):
                ours.append(_ran("hwcompat", request, 1))
                each = [_ran("optimum-benchmark", request, size) for size in sizes]
                theirs.append({key: taken for one in each for key, taken in one.items()})
            for one in series:
                found.append(compared(f"{model}, {one}", [run[one] for run in ours], [run[one] for run in theirs]))
    agree = sum(same for same, _ in found)
    remark = f"The figures agree in {agree} of {len(found)}: each median is between the other's percentiles."
    return Result(title=title, remarks=(remark, *(text for _, text in found)))


def compared(what: str, ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> tuple[bool, str]:
    """Return whether two tools agree about a figure, and both with their spread; each run is the milliseconds of its
    calls."""
    own, other = (Spread.of([taken for run in side for taken in run]) for side in (ours, theirs))
    near = own.p10_ms <= other.median_ms <= own.p90_ms and other.p10_ms <= own.median_ms <= other.p90_ms
    texts = [f"{one.median_ms:.3g} ms ({one.p10_ms:.3g} to {one.p90_ms:.3g})" for one in (own, other)]
    return near, f"{what}: {texts[0]} and {texts[1]}; they {'agree' if near else 'differ'}."


def _ran(tool: str, request: Sequence[Any], batch: int) -> dict[str, list[float]]:
    """Return the milliseconds of each call by series. Raises `RuntimeError` with a failed tool's last line."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = str(ROOT) if tool == "hwcompat" else ""
    command = [str(_RIVAL), "-c", _CODE[tool], json.dumps([*request, batch, _CALLS, _STEPS])]
    done = subprocess.run(command, env=environment, cwd=request[0], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{tool} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    found: dict[str, list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
