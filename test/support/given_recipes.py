"""Recipes of what users bring: a module and a graph file, written by hand."""

from __future__ import annotations

from dataclasses import replace

from generators.models.given_recipe import GivenInput, GivenRecipe


def module_recipe() -> GivenRecipe:
    return GivenRecipe(
        kind="module",
        name="own_net:make",
        subject="own",
        task="module-forward",
        inputs={
            "ids": GivenInput(kind="integers", dtype="int64", shape=("batch", 4), low=0, high=9),
            "x": GivenInput(kind="normal", dtype="float32", shape=("batch", 3), low=1, high=2),
            "share": GivenInput(kind="uniform", dtype="float32", shape=("batch",), low=-1, high=1),
            "mask": GivenInput(kind="booleans", dtype="bool", shape=("batch", 4)),
        },
        sizes={"batch": 2},
        other_sizes={"batch": 3},
        parameters=16,
        gradients=2,
        gradient_norm=1.5,
        operators=("aten.addmm",),
        outputs=("output",),
        recorded={"output": "output", "positions": [[0, 1], [1, 2]], "values": [0.5, -0.25], "scale": 1.0},
        paired=True,
    )


def graph_recipe() -> GivenRecipe:
    module = module_recipe()
    inputs = {
        **{name: one for name, one in module.inputs.items() if name in ("ids", "x")},
        "pixels": GivenInput(kind="page", dtype="float32", shape=("batch", 3, 20, 30), low=0, high=255),
        "sound": GivenInput(kind="tones", dtype="float32", shape=("batch", 224)),
    }
    return replace(
        module,
        kind="graph",
        name="net.onnx",
        task="graph-forward",
        inputs=inputs,
        weights_hash="a" * 64,
        paired=False,
        parameters=0,
        gradients=0,
        operators=(),
    )
