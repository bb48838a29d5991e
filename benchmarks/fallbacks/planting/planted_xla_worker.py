"""The worker of target tpu without one lowering: aten computes GELU, and its gradient, on the host instead."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

WORKERS = Path(__file__).parents[3] / "hardware" / "workers"


def on_host(operator: Any, *arrays: Any, **options: Any) -> Any:
    """Compute an aten operator on host arrays; return the result in the dtype of the last."""
    import numpy as np
    import torch

    Path(os.environ["HWCOMPAT_PLANTED"]).touch()
    given = [torch.as_tensor(np.array(one, dtype=np.float32)) for one in arrays]
    return operator(*given, **options).numpy().astype(arrays[-1].dtype)


def gelu(values: Any, *, approximate: str = "none") -> Any:
    """Compute GELU by a callback from inside an XLA program."""
    import functools

    import jax
    import torch

    def call(operator: Any, *arrays: Any) -> Any:
        like = jax.ShapeDtypeStruct(arrays[-1].shape, arrays[-1].dtype)
        return jax.pure_callback(functools.partial(on_host, operator, approximate=approximate), like, *arrays)

    @jax.custom_vjp
    def compute(values: Any) -> Any:
        return call(torch.ops.aten.gelu, values)

    def forward(values: Any) -> Any:
        return compute(values), values

    def backward(values: Any, gradient: Any) -> Any:
        return (call(torch.ops.aten.gelu_backward, gradient, values),)

    compute.defvjp(forward, backward)
    return compute(values)


def main() -> None:
    """Run the worker with a changed table of lowerings."""
    sys.path.append(str(WORKERS))
    spec = importlib.util.spec_from_file_location("xla_worker", WORKERS / "xla_worker.py")
    assert spec is not None
    assert spec.loader is not None
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    found = worker.lowering_of

    def lowering_of(target: Any) -> Any:
        import dataclasses

        own = found(target)
        return dataclasses.replace(own, func=gelu) if own is not None and "aten.gelu." in f"{target}." else own

    worker.lowering_of = lowering_of
    answers = {name: getattr(worker, name) for name in ("describe", "run", "gradients", "save")}
    importlib.import_module("serve").serve(answers)


if __name__ == "__main__":
    main()
