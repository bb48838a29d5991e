"""Measure how often `--localize` names the right place, for 60 seeded faults in torch modules and in graphs.

`python -m benchmarks.localization --kept FOLDER` writes docs/measured/localization.md. A fault breaks the forward
pass of one module or one node of a graph. If the outputs stay within tolerance, the next fault is drawn; the page
says how often. A place is right if it is the broken module or node; another node of the same torch module is counted
separately, as right for the module alone.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from generators.models.inputs import make_inputs
from generators.recipes.on_demand import recipe_for
from hardware.backends.factory import get_backend
from hardware.evidence.writer import now
from hardware.output_masks import masks_of
from hardware.testing import reference
from hwcompat.plugins.triage.localization.graph_nodes import GraphRuns, localize_graph, traced_values
from hwcompat.plugins.triage.localization.localization_result import Localization
from hwcompat.plugins.triage.localization.localize_cell import built, subject_of
from hwcompat.plugins.triage.localization.onnx_nodes import OnnxRuns, compute_on_cpu
from hwcompat.plugins.triage.localization.tensor_errors import padding_of
from hwcompat.plugins.triage.localization.torch_modules import localize_modules

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "localization.md"
TOLERANCE = 2e-5
MODULE_MODELS = ("bert", "gpt2", "t5", "convnext", "roberta", "llama", "mamba", "opt", "vit", "mixtral")
GRAPH_MODELS = ("bert", "gpt2", "t5", "convnext", "llama")
EACH = 3
PARTS = ("torch", "onnx", "openvino")
_MOST_DRAWS = 30


# Torch modules


PLANNED = 60
_TEXT = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault: its place, the place that was named, and the place with the largest error in the run."""

    where: str
    model: str
    fault: str
    broken: str
    named: str
    right: bool
    module_right: bool
    baseline: bool | None
    unheard: int
    finding: str


def page(rows: list[Row], stamp: str) -> str:
    """Return the page: the share of right places, compared with the place of largest error, and every fault."""
    versions = ", ".join(
        f"{one} {metadata.version(one)}" for one in ("torch", "transformers", "openvino", "onnxruntime")
    )
    groups = sorted({row.where for row in rows})
    lines = ["| where | faults | right place | right module | baseline |", "|---|---|---|---|---|"]
    for group in [*groups, ""]:
        own = [row for row in rows if group in ("", row.where)]
        based = [row for row in own if row.baseline is not None]
        baseline = f"{sum(bool(row.baseline) for row in based)} of {len(based)}" if based else "-"
        right, module = sum(row.right for row in own), sum(row.module_right for row in own)
        lines.append(f"| {group or 'all'} | {len(own)} | {right} | {module} | {baseline} |")
    lines += ["", "| where | model | fault | broken | named | right |", "|---|---|---|---|---|---|"]
    for row in rows:
        verdict = "yes" if row.right else "module" if row.module_right else "**no**"
        named = "the same" if row.right else f"`{row.named}` ({row.finding})"
        lines.append(f"| {row.where} | {row.model} | {row.fault} | `{row.broken}` | {named} | {verdict} |")
    return _TEXT.format(
        right=sum(row.right for row in rows),
        count=len(rows),
        partly=f"{len(rows)} of the {PLANNED} faults are measured. " * (len(rows) < PLANNED),
        date=stamp[:10],
        versions=versions,
        unheard=sum(row.unheard for row in rows),
        tables="\n".join(lines),
    )


def _scaled(output: Any, random: random.Random) -> Any:
    factor = random.uniform(1.01, 1.1)
    return _change_first(output, lambda one: one * factor)


def _noisy(output: Any, random: random.Random) -> Any:
    import torch

    seed = random.randrange(2**31)

    def noise(one: Any) -> Any:
        drawn = torch.randn(one.shape, generator=torch.Generator().manual_seed(seed))
        return one + 1e-3 * drawn.to(one.device) * one.abs().max()

    return _change_first(output, noise)


def _rolled(output: Any, random: random.Random) -> Any:
    axis = random.choice([1, -1])
    return _change_first(output, lambda one: one.roll(1, axis))


def _change_first(output: Any, change: Any) -> Any:
    """Change the first floating-point tensor of an output, if there is one."""
    import torch

    if isinstance(output, torch.Tensor):
        return change(output) if output.is_floating_point() and output.dim() > 1 else output
    if isinstance(output, tuple) and output:
        return type(output)((_change_first(output[0], change), *output[1:])) if type(output) is tuple else output
    if hasattr(output, "keys"):
        found = copy.copy(output)
        key = next(iter(found))
        found[key] = _change_first(found[key], change)
        return found
    return output


_OUTPUT_FAULTS = {"scaled by 1.01 to 1.1": _scaled, "noise of 1e-3": _noisy, "shifted along an axis": _rolled}
_WEIGHT_FAULTS = ("bias dropped", "halves of the weight's columns exchanged")


def break_module(model: Any, random: random.Random) -> tuple[str, str]:
    """Break one module in place; return its path and the kind of fault."""
    import torch

    modules = {name: one for name, one in model.named_modules() if name}
    biased = any(getattr(one, "bias", None) is not None for one in modules.values())
    fault = random.choice([*_OUTPUT_FAULTS, *(_WEIGHT_FAULTS if biased else _WEIGHT_FAULTS[1:])])
    if fault in _OUTPUT_FAULTS:
        name = random.choice(list(modules))
        before = modules[name].forward
        seed = random.randrange(2**31)

        @functools.wraps(before)
        def wrong(*args: Any, **kwargs: Any) -> Any:
            return _OUTPUT_FAULTS[fault](before(*args, **kwargs), type(random)(seed))

        modules[name].forward = wrong
        return name, fault
    need = "bias" if fault.startswith("bias") else "weight"
    least = 1 if need == "bias" else 2
    having = [n for n, one in modules.items() if getattr(getattr(one, need, None), "ndim", 0) >= least]
    name = random.choice(having)
    with torch.no_grad():
        if need == "bias":
            modules[name].bias = torch.nn.Parameter(torch.zeros_like(modules[name].bias))
        else:
            weight = modules[name].weight
            half = weight.shape[1] // 2 or 1
            modules[name].weight = torch.nn.Parameter(weight.roll(half, 1))
    return name, fault


def module_rows() -> Iterator[Row]:
    """Measure three faults in each model, on cpu and on the simulated device in turns."""
    for number, model_type in enumerate(MODULE_MODELS):
        target = ("cpu", "simulated")[number % 2]
        recipe = recipe_for(model_type)
        inputs = dict(make_inputs(recipe.inputs, 0))
        backend = get_backend(target)
        for place in range(EACH):
            yield _module_row(f"torch on {target}", model_type, recipe, inputs, backend, place)


def _module_row(where: str, model_type: str, recipe: Any, inputs: Any, backend: Any, place: int) -> Row:
    def load(target: Any) -> Any:
        return target.load(subject_of(recipe), inputs, "float32")

    for draw in range(_MOST_DRAWS):
        exact = reference.as_reference(built(recipe))
        runnable = load(backend)
        broken, fault = break_module(runnable.model, random.Random(f"{model_type}@{place}@{draw}"))
        control = None if backend.BACKEND_NAME == "cpu" else lambda: load(get_backend("cpu"))
        found = localize_modules(
            runnable, exact, inputs, cell="", tolerance=TOLERANCE, masked_by=recipe.masked_by, control=control
        )
        if found.outputs_error is not None and not found.outputs_error <= TOLERANCE:
            return _row(where, model_type, fault, broken, found, draw)
    raise RuntimeError(f"no fault of {model_type} is heard")


def _row(where: str, model_type: str, fault: str, broken: str, found: Localization, unheard: int) -> Row:
    named = found.place.name if found.place else ""
    right = found.place is not None and named == broken
    return Row(
        where=where,
        model=model_type,
        fault=fault,
        broken=broken,
        named=named if found.place else "nothing",
        right=right,
        module_right=right,
        baseline=found.largest.name == broken if found.largest else None,
        unheard=unheard,
        finding=str(found.finding),
    )


# Graphs


_OTHER_OPERATORS = {"Add": "Sub", "Sub": "Add", "Mul": "Add", "Tanh": "Sigmoid", "Erf": "Tanh", "Softmax": "Softmax"}
_OPENVINO_OTHERS = {"Add": "subtract", "Multiply": "add", "Gelu": "relu", "Tanh": "sigmoid", "Divide": "multiply"}


def break_onnx(file: Path, broken_file: Path, random: random.Random) -> tuple[str, str]:
    """Break one node of an ONNX file: change its operator or axis, or scale its constant."""
    import onnx

    model = onnx.load(str(file))
    graph = model.graph
    constants = {one.name: one for one in graph.initializer if one.data_type == onnx.TensorProto.FLOAT}
    able = [n for n in graph.node if n.op_type in _OTHER_OPERATORS or any(one in constants for one in n.input)]
    node = random.choice(able)
    own = [place for place, one in enumerate(node.input) if one in constants]
    if own and (node.op_type not in _OTHER_OPERATORS or random.random() < 0.5):
        place = random.choice(own)
        values = onnx.numpy_helper.to_array(constants[node.input[place]]) * np.float32(random.uniform(1.01, 1.1))
        node.input[place] = "broken_constant"
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values), "broken_constant"))
        fault = f"{node.op_type}: constant scaled"
    elif node.op_type == "Softmax":
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("axis", -2))
        fault = "Softmax: another axis"
    else:
        fault = f"{node.op_type} became {_OTHER_OPERATORS[node.op_type]}"
        node.op_type = _OTHER_OPERATORS[node.op_type]
    onnx.save(model, str(broken_file))
    return node.name or node.output[0], fault


def break_openvino(file: Path, broken_file: Path, random: random.Random) -> tuple[str, str]:
    """Break one node of an OpenVINO file: change its operator, or scale its constant."""
    import openvino
    from openvino import opset13 as ops

    model = openvino.Core().read_model(file)
    pairs = []
    for node in model.get_ordered_ops():
        if node.get_output_size() != 1 or not str(node.get_output_element_type(0).get_type_name()).startswith("f"):
            continue
        own = [i for i, one in enumerate(node.inputs()) if _float_constant(one)]
        if node.get_type_name() in _OPENVINO_OTHERS or own:
            pairs.append((node, own))
    node, own = random.choice(pairs)
    name, kind = node.get_friendly_name(), node.get_type_name()
    if own and (kind not in _OPENVINO_OTHERS or random.random() < 0.5):
        port = node.input(random.choice(own))
        values = port.get_source_output().get_node().get_data() * np.float32(random.uniform(1.01, 1.1))
        port.replace_source_output(ops.constant(np.asarray(values, dtype=np.float32)).output(0))
        fault = f"{kind}: constant scaled"
    else:
        new = getattr(ops, _OPENVINO_OTHERS[kind])(*[one.get_source_output() for one in node.inputs()])
        new.set_friendly_name(name)
        for taker in list(node.output(0).get_target_inputs()):
            taker.replace_source_output(new.output(0))
        fault = f"{kind} became {_OPENVINO_OTHERS[kind]}"
    openvino.save_model(model, broken_file, compress_to_fp16=False)
    return name, fault


def _float_constant(port: Any) -> bool:
    node = port.get_source_output().get_node()
    return node.get_type_name() == "Constant" and node.get_output_element_type(0).get_type_name() == "f32"


def graph_rows(kind: str) -> Iterator[Row]:
    """Measure three faults in each model, in turns in the graph that a device runs and in the converted graph."""
    number = 0
    for model_type in GRAPH_MODELS:
        recipe = recipe_for(model_type)
        inputs = dict(make_inputs(recipe.inputs, 0))
        padding = padding_of(inputs)
        traced = traced_values(reference.as_reference(built(recipe)), inputs, padding)
        subject = subject_of(recipe)
        file = _exported(kind, subject, inputs)
        for place in range(EACH):
            number += 1
            row = _graph_row(
                kind, model_type, recipe, inputs, subject, file, traced, place, on_device=number % 2 == 1
            )
            yield row


def _exported(kind: str, subject: Any, inputs: Any) -> Path:
    if kind == "onnx":
        from hardware.export.onnx_export import export_onnx

        return export_onnx(subject, inputs).folder / "model.onnx"
    from hardware.backends._openvino_model import OPENVINO_OPTIONS, open_model
    from hardware.export.openvino_export import export_openvino

    exact = OPENVINO_OPTIONS["float32"]
    made = export_openvino(subject, inputs, lambda it: open_model(it, subject, "CPU", exact), traced_anew=True)
    return made.folder / "openvino_model.xml"


def _graph_row(
    kind: str,
    model_type: str,
    recipe: Any,
    inputs: Any,
    subject: Any,
    file: Path,
    traced: Any,
    place: int,
    *,
    on_device: bool,
) -> Row:
    from hardware.export.onnx_export import with_positions

    given = with_positions(subject, inputs)
    for draw in range(_MOST_DRAWS):
        with tempfile.TemporaryDirectory(prefix="hwcompat-") as name:
            folder = Path(name)
            seeded = random.Random(f"{kind}@{model_type}@{place}@{draw}")
            broken_file = folder / f"broken{file.suffix}"
            broken, fault = (break_onnx if kind == "onnx" else break_openvino)(file, broken_file, seeded)
            sound, device = (file, broken_file) if on_device else (broken_file, None)
            runs = _runs(kind, sound, given, folder, device)
            found = localize_graph(
                runs,
                traced[0],
                traced[1],
                cell="",
                tolerance=TOLERANCE,
                precision="float32",
                masks=masks_of(recipe.masked_by, inputs),
                padding=padding_of(inputs),
            )
        if found.outputs_error is not None and not found.outputs_error <= TOLERANCE:
            where = f"{kind}, {'on the device' if on_device else 'in the file'}"
            row = _row(where, model_type, fault, broken, found, draw)
            module = next((node.module for node in runs.nodes if node.name == broken), "")
            same = found.place is not None and bool(module) and found.place.module == module
            return Row(**{**vars(row), "module_right": row.right or same})
    raise RuntimeError(f"no fault of {model_type} as {kind} is heard")


def _runs(kind: str, file: Path, given: Any, folder: Path, device: Path | None) -> GraphRuns:
    if kind == "onnx":
        import onnx

        nodes = OnnxRuns(file, given, compute_on_cpu, folder)
        nodes.device_model = onnx.load(str(device or file))
        return nodes
    from hardware.backends._openvino_model import OPENVINO_OPTIONS
    from hwcompat.plugins.triage.localization.openvino_nodes import OpenVINORuns

    runs = OpenVINORuns(file, given, "CPU", OPENVINO_OPTIONS["float32"])
    runs.device_file = device or file
    return runs


def main() -> None:
    """Measure the requested parts, and write the page of all stored parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="measure this part alone")
    parser.add_argument("--kept", type=Path, required=True, help="folder in which each part's rows are kept")
    options = parser.parse_args()
    options.kept.mkdir(parents=True, exist_ok=True)
    for kind in [options.only] if options.only else PARTS:
        rows = []
        for row in module_rows() if kind == "torch" else graph_rows(kind):
            rows.append(row)
            print(
                row.where, row.model, row.fault, row.broken, "->", row.named, row.right, row.module_right, flush=True
            )
            kept = json.dumps([asdict(one) for one in rows])
            (options.kept / f"{kind}.json").write_text(kept, encoding="utf-8")
    files = [options.kept / f"{kind}.json" for kind in PARTS]
    measured = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]
    PAGE.write_text(page([Row(**one) for part in measured for one in part], now()), encoding="utf-8")


if __name__ == "__main__":
    main()
