"""Renders the one script of a repro. Pure: from what was captured and the suite's text to text; whatever reaches the
source is a literal, an identifier or a comment."""

from __future__ import annotations

import ast
import keyword
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from generators.suites.render import environment
from hardware.errors import UsageError
from hardware.export.onnx import OPSET

from .failure import EXPECTED, INPUTS, MASK, WEIGHTS, Captured, Does, Shape, Step, Way
from .source import ModelSource

OURS = frozenset({"hardware", "generators", "reports", "benchmarks", "hwcompat"})

_HALF = ("float16", "bfloat16")
_TRACED = (Way.OPENVINO_CONVERT, Way.ONNX_EXPORT)
_PACKAGES: Mapping[Way, Sequence[str]] = {
    Way.TORCH: ("torch", "numpy", "safetensors"),
    Way.OPENVINO_CONVERT: ("torch", "numpy", "safetensors", "openvino"),
    Way.OPENVINO_GRAPH: ("numpy", "safetensors", "openvino"),
    Way.ONNX_EXPORT: ("torch", "numpy", "safetensors", "onnx", "onnxruntime"),
    Way.QNN_GRAPH: ("numpy", "onnxruntime", "onnxruntime-qnn"),
}
"""What a script of each way needs, by the names of distributions; a library of models comes to it."""

_MASKS = (
    "from optimum.exporters.openvino.patching_utils import eager_mask_without_vmap",
    "from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS",
)

_FLOAT16_LARGEST = -65504.0
"""HTP computes in float16: what is smaller than any of its numbers was ruled out."""


def script_text(
    captured: Captured,
    source: ModelSource,
    arrays: Mapping[str, Sequence[str]],
    *,
    title: str,
    story: Sequence[str],
    masks: bool = False,
) -> str:
    """The script that shows what was captured.

    `arrays` are the names of what lies beside it, by file: those of the inputs decide which helpers it needs.
    `title` and `story` stand in its first lines. With `masks`, transformers' masks are those that optimum-intel
    registers when it exports: a tracer can't follow the library's own. Raises `UsageError` where there is no step.
    """
    step = captured.step
    if step is None or captured.refused:
        raise UsageError("no script can show it", why=captured.refused or "nothing was tried")
    values = {
        "title": title,
        "story": list(story),
        "masks": masks,
        **_of_step(step),
        **_of_parts(captured, step, arrays),
    }
    values |= _of_model(step, source, arrays, masks=masks)
    text = environment().get_template("repro/script.py.j2").render(values).rstrip("\n") + "\n"
    return _tidied(text)


def _of_step(step: Step) -> dict[str, Any]:
    """What is asked of the runtime."""
    return {
        "way": str(step.way),
        "does": str(step.does),
        "device": step.device,
        "precision": step.precision,
        "half": step.precision in _HALF,
        "graph": step.graph,
        "options": dict(step.options),
        "facts": dict(step.facts),
        "opset": OPSET,
        "has_graph": step.way.has_graph,
        "traced": step.way in _TRACED,
    }


def _of_parts(captured: Captured, step: Step, arrays: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The files beside it, how a model is called with them, and what is compared."""
    is_nested = not step.way.has_graph and any("." in name for name in arrays.get(INPUTS, ()))
    wish = ", use_cache=False" if step.facts.get("use_cache") else ""
    compares = captured.shape is Shape.NUMBERS
    gives = step.does in (Does.FORWARD, Does.GRADIENTS, Does.RELOAD)
    return {
        "weights": WEIGHTS,
        "inputs": INPUTS,
        "expected": EXPECTED,
        "compares": compares,
        "tolerance": captured.tolerance if compares else None,
        "ruled_out": _ruled_out(captured, arrays),
        "nested": is_nested,
        "flattens": step.way in _TRACED or (not step.way.has_graph and gives),
        "arguments": _arguments(step.facts.get("order", ())),
        "call": ("**nested(tensors)" if is_nested else "**tensors") + wish,
        "named_call": ("**nested(named)" if is_nested else "**named") + wish,
    }


def _of_model(step: Step, source: ModelSource, arrays: Mapping[str, Sequence[str]], *, masks: bool) -> dict[str, Any]:
    """How the model is made, and what that needs."""
    has_graph = step.way.has_graph
    imports = () if has_graph else source.imports
    checkpoint = "" if has_graph else source.checkpoint
    libraries = [name for name in ("transformers", "diffusers") if any(f"from {name} " in line for line in imports)]
    packages = [*_PACKAGES[step.way], *libraries, *(["optimum-intel"] if masks else [])]
    weights = WEIGHTS in arrays and not has_graph and step.does is not Does.BUILD
    return {
        "command": "python repro.py" + (" FOLDER_OR_ID_OF_THE_CHECKPOINT" if checkpoint else ""),
        "needs": ", ".join(packages),
        "packages": packages,
        "model_code": "" if has_graph else source.code,
        "checkpoint": checkpoint,
        "has_weights": weights,
        "plain_imports": _plain(step.way, step.does, checkpoint=bool(checkpoint)),
        "imports": _third_party(step.way, imports, weights=weights, masks=masks),
    }


def own_imports(text: str) -> tuple[str, ...]:
    """The modules of ours that a script would import: there may be none."""
    found = []
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [name for name in names if name.partition(".")[0] in OURS]
    return tuple(found)


def _arguments(names: Sequence[str]) -> dict[str, str]:
    """What the parameters of a forward pass are called in Python, by the names of its inputs."""
    plain = {name: name if name.isidentifier() and not keyword.iskeyword(name) else "" for name in names}
    return {name: found or f"input_{place}" for place, (name, found) in enumerate(plain.items())}


def _ruled_out(captured: Captured, arrays: Mapping[str, Sequence[str]]) -> float | None:
    """The number from which on downwards an entry counts as ruled out, where anything may be."""
    if captured.shape is not Shape.NUMBERS or "minus infinity" not in arrays.get(EXPECTED, ()):
        return None
    if captured.step is not None and captured.step.way is Way.QNN_GRAPH:
        return _FLOAT16_LARGEST
    return {"float16": _FLOAT16_LARGEST}.get(captured.step.precision if captured.step else "", -3.3e38)


def _plain(way: Way, does: Does, *, checkpoint: bool) -> list[str]:
    """Imports of the standard library, in order."""
    names = ["platform", *(["json"] if way is Way.QNN_GRAPH else []), *(["sys"] if checkpoint else [])]
    names += ["tempfile"] if way is Way.ONNX_EXPORT or does is Does.RELOAD else []
    return [
        *(f"import {name}" for name in sorted(names)),
        "from importlib import metadata",
        "from pathlib import Path",
    ]


def _third_party(way: Way, imports: Sequence[str], *, weights: bool, masks: bool) -> list[str]:
    named = {
        Way.TORCH: ["import torch"],
        Way.OPENVINO_CONVERT: ["import openvino", "import torch"],
        Way.OPENVINO_GRAPH: ["import openvino"],
        Way.ONNX_EXPORT: ["import onnxruntime", "import torch"],
        Way.QNN_GRAPH: ["import onnxruntime", "import onnxruntime_qnn"],
    }[way]
    read = [] if way is Way.QNN_GRAPH else ["from safetensors.numpy import load_file"]
    read += ["from safetensors.torch import load_model"] if weights else []
    return [
        "import numpy as np",
        *named,
        *(_MASKS[:1] if masks else ()),
        *read,
        *imports,
        *(_MASKS[1:] if masks else ()),
    ]


def _tidied(text: str) -> str:
    """At most two blank lines in a row, and none at a line's end. Raises `UsageError` for what isn't Python."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() or lines[-2:] != ["", ""]:
            lines.append(line.rstrip())
    tidy = "\n".join(lines).rstrip("\n") + "\n"
    try:
        ast.parse(tidy, feature_version=sys.version_info[:2])
    except SyntaxError as error:
        raise UsageError("the script of this failure is no Python", why=str(error)) from error
    if found := own_imports(tidy):
        raise UsageError("no script can stand alone for this model", why=f"it would import {', '.join(found)}")
    return tidy


def names_in(arrays: Mapping[str, Any]) -> list[str]:
    """The names of arrays, and `minus infinity` where one of them holds it."""
    import numpy as np

    held = any(one.dtype.kind == "f" and bool(np.isneginf(one).any()) for one in arrays.values())
    return [*(name for name in arrays if not name.startswith(MASK)), *(["minus infinity"] if held else [])]
