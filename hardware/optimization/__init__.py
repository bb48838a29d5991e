"""Make a model faster on its device: levels, the optimizers of each target, and their results."""

from __future__ import annotations

from .optimization_steps import OptimizationLevel, OptimizationResult
from .optimizers import (
    AMDOptimizer,
    AppleOptimizer,
    BaseOptimizer,
    CPUOptimizer,
    IntelOptimizer,
    NVIDIAOptimizer,
    optimizer_for,
)

__all__ = [
    "AMDOptimizer",
    "AppleOptimizer",
    "BaseOptimizer",
    "CPUOptimizer",
    "IntelOptimizer",
    "NVIDIAOptimizer",
    "OptimizationLevel",
    "OptimizationResult",
    "optimizer_for",
]
