"""Render the script of a repro, and run it in a child process that can't import our packages.

Rendering is pure, from the captured failure and the suite's text to text; every value in the source is a literal, an
identifier or a comment. The part of a suite that builds its model is copied unchanged, so that both have the same
code.
"""

from __future__ import annotations

import ast
import base64
import keyword
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwcompat.generators.suites.render import environment
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.export.onnx_export import OPSET
from hwcompat.hardware.process import run

from .captured_failure import EXPECTED, INPUTS, MASK, WEIGHTS, CapturedFailure, Does, FailedStep, Shape, Way

SCRIPT = "repro.py"
_LONGEST_READ = 200_000
_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$", re.DOTALL)
_OFF = re.compile(r"off by (?P<error>inf|nan|\d\.\d+e[+-]\d+) of its scale")

_VERSION = re.compile(
    r"^(?P<name>[A-Za-z][\w.-]*) (?P<version>\d[\w.!]*)(?:\+(?P<local>[\w.]+))?(?: on .*)?$", re.MULTILINE
)
_TORCH_INDEX = re.compile(r"cpu|xpu|cu\d+|rocm[\d.]+")
"""Local versions of torch that have an index of their own: https://pytorch.org/get-started/locally/"""

_START = "make_model"
_OF_CHECKPOINTS = frozenset({"load_checkpoint", "checkpoint_folder"})
_LIBRARIES = ("transformers", "diffusers")
_TRACED = (Way.OPENVINO_CONVERT, Way.ONNX_EXPORT)
_PACKAGES: Mapping[Way, Sequence[str]] = {
    Way.TORCH: ("torch", "numpy", "safetensors"),
    Way.OPENVINO_CONVERT: ("torch", "numpy", "safetensors", "openvino"),
    Way.OPENVINO_GRAPH: ("numpy", "openvino"),
    Way.ONNX_EXPORT: ("torch", "numpy", "safetensors", "onnx", "onnxruntime"),
    Way.QNN_GRAPH: ("numpy", "onnxruntime", "onnxruntime-qnn"),
    Way.ONNX_FILE: ("numpy", "onnxruntime"),
    Way.WEB_FILE: ("numpy", "playwright"),
}
"""The distributions that a script of each way needs; the model's library is added."""

_IMPORTED = ("onnxruntime", "onnxruntime-qnn", "openvino", "torch")
"""Modules that a script imports as a whole."""

_INFINITE = "minus infinity"
_FLOAT16_LARGEST = -65504.0
"""HTP computes in float16: numbers below its range mean minus infinity."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """`imports` and `code` that define `make_model`. `checkpoint` is the class of a user's checkpoint; then there is
    no code."""

    imports: tuple[str, ...]
    code: str
    checkpoint: str = ""


def model_source(text: str) -> ModelSource:
    """Return what `make_model` of a suite needs, and nothing else.

    Raises `UsageError` if it needs a package that isn't a public library of models.
    """
    tree = ast.parse(text)
    defined = {name: node for node in tree.body for name in _names_of(node)}
    wanted = [_START]
    taken: dict[int, ast.stmt] = {}
    while wanted:
        node = defined.get(wanted.pop())
        if node is not None and node.lineno not in taken:
            taken[node.lineno] = node
            wanted += _names_in(node)
    nodes = [taken[line] for line in sorted(taken)]
    used = {name for node in nodes for name in _names_in(node)}
    imports = {node: _import_of_used(node, used) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)}
    if used & _OF_CHECKPOINTS:
        returned = ast.unparse(defined[_START]).partition("load_checkpoint(")[2]
        library = tuple(line for line in imports.values() if line.startswith("from transformers"))
        return ModelSource(imports=library, code="", checkpoint=returned.partition(",")[0])
    for line in imports.values():
        if (package := line.split()[1].partition(".")[0]) not in (*_LIBRARIES, "copy", "torch"):
            raise UsageError(
                "no stand-alone script can build this model",
                why=f"it needs {package}, which isn't a public model library",
                fix="Send the failing suite instead.",
            )
    code = [ast.get_source_segment(text, node) or "" for node in nodes if node not in imports]
    return ModelSource(imports=tuple(imports.values()), code="\n\n\n".join(code))


def _names_of(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Assign):
        yield from (one.id for one in node.targets if isinstance(one, ast.Name))
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name


def _names_in(node: ast.stmt) -> list[str]:
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]


def _import_of_used(node: ast.Import | ast.ImportFrom, used: set[str]) -> str:
    if isinstance(node, ast.Import):
        return ast.unparse(node)
    names = [alias.name for alias in node.names if (alias.asname or alias.name) in used]
    return f"from {node.module} import {', '.join(names)}"


def script_text(
    captured: CapturedFailure,
    source: ModelSource,
    arrays: Mapping[str, Sequence[str]],
    *,
    title: str,
    story: Sequence[str],
    masks: bool = False,
    files: Mapping[str, bytes] | None = None,
    printed: str = "",
) -> str:
    """Return the script that shows the captured failure.

    `arrays` are the names of the arrays beside it, by file: those of the inputs decide which helpers it needs.
    `title` and `story` are its first lines. With `masks`, transformers' masks are those that optimum-intel registers
    for its exports, since a tracer can't follow the library's own. The script contains `files`, by name; others
    lie beside it. `printed` is what an earlier run of it printed: the versions in it are pinned in a header for
    `uv run` (https://packaging.python.org/en/latest/specifications/inline-script-metadata/). Raises `UsageError`
    without a step.
    """
    step = captured.step
    if step is None or captured.refused:
        raise UsageError("no script can show the failure", why=captured.refused or "no step was tried")
    way, is_graph, is_traced = step.way, step.way.has_graph, step.way in _TRACED
    source = ModelSource(imports=(), code="") if is_graph else source
    libraries = [name for name in _LIBRARIES if any(f"from {name} " in line for line in source.imports)]
    packages = [*_PACKAGES[way], *libraries, *(["optimum-intel"] if masks else [])]
    is_nested = not is_graph and any("." in name for name in arrays.get(INPUTS, ()))
    compares = captured.shape is Shape.NUMBERS
    smallest = _FLOAT16_LARGEST if way is Way.QNN_GRAPH or step.precision == "float16" else -3.3e38
    values = {
        **vars(step),
        "title": title,
        "story": story,
        "masks": masks,
        **(pinned := _pinned(printed, packages)),
        "command": ("uv run" if pinned["pins"] else "python") + " repro.py" + _words(source, way),
        "files": {name: _lines(data) for name, data in (files or {}).items()},
        "packages": packages,
        "modules": sorted(name.replace("-", "_") for name in packages if name in _IMPORTED),
        "source": source,
        "half": step.precision in ("float16", "bfloat16"),
        "opset": OPSET,
        "has_graph": is_graph,
        "has_weights": WEIGHTS in arrays and not is_graph and step.does is not Does.BUILD,
        "traced": is_traced,
        "flattens": is_traced or (not is_graph and step.does in (Does.FORWARD, Does.GRADIENTS, Does.RELOAD)),
        **{"weights": WEIGHTS, "inputs": INPUTS, "expected": EXPECTED},
        "compares": compares,
        "tolerance": captured.tolerance if compares else None,
        "scales": {name: captured.scales[name] for name in arrays.get(EXPECTED, ()) if name in captured.scales},
        "parts": {name: list(one) for name, one in captured.parts.items()},
        "ruled_out": smallest if compares and _INFINITE in arrays.get(EXPECTED, ()) else None,
        "nested": is_nested,
        "arguments": _arguments(step.facts.get("order", ())),
        "call": ("**nested(tensors)" if is_nested else "**tensors") + _wish(step),
        "named_call": ("**nested(named)" if is_nested else "**named") + _wish(step),
    }
    return _normalized(environment().get_template("repro/script.py.j2").render(values))


def _wish(step: FailedStep) -> str:
    return ", use_cache=False" if step.facts.get("use_cache") else ""


def _pinned(printed: str, packages: Sequence[str]) -> dict[str, object]:
    """Return the pins of the versions that a script printed, the minor version of Python, and torch's index."""
    found = {one["name"]: one for one in _VERSION.finditer(printed)}
    if "python" not in found:
        return {"pins": []}
    pins = [f"{name}=={found[name]['version']}" for name in packages if name in found]
    local = found["torch"]["local"] or "" if "torch" in packages and "torch" in found else ""
    python = ".".join(found["python"]["version"].split(".")[:2])
    return {"pins": pins, "python": python, "index": local if _TORCH_INDEX.fullmatch(local) else ""}


def _lines(data: bytes) -> list[str]:
    text = base64.b64encode(data).decode()
    return [text[start : start + 116] for start in range(0, len(text), 116)]


def _words(source: ModelSource, way: Way) -> str:
    """Return the arguments of a script's command line."""
    if way is Way.WEB_FILE:
        return " node_modules/onnxruntime-web/dist PATH_OF_CHROMIUM"
    return " FOLDER_OR_ID_OF_THE_CHECKPOINT" if source.checkpoint else ""


def _arguments(names: Sequence[str]) -> dict[str, str]:
    """Return the parameters of a forward pass as names in Python, by the names of its inputs."""
    return {
        name: name if name.isidentifier() and not keyword.iskeyword(name) else f"input_{place}"
        for place, name in enumerate(names)
    }


def _normalized(text: str) -> str:
    """Remove blank lines beyond two in a row, and at a line's end. Raises `UsageError` for what isn't Python."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() or lines[-2:] != ["", ""]:
            lines.append(line.rstrip())
    tidy = "\n".join(lines).rstrip("\n") + "\n"
    try:
        ast.parse(tidy, feature_version=sys.version_info[:2])
    except SyntaxError as error:
        raise UsageError("the script of this failure isn't valid Python", why=str(error)) from error
    return tidy


def arrays_in(folder: Path) -> dict[str, list[str]]:
    """Return the names of the arrays in each file beside a script, and `minus infinity` if one of them holds it."""
    import numpy as np

    found: dict[str, list[str]] = {WEIGHTS: []} if (folder / WEIGHTS).is_file() else {}
    for name in (INPUTS, EXPECTED):
        arrays = dict(np.load(folder / name)) if (folder / name).is_file() else {}
        held = any(one.dtype.kind == "f" and bool(np.isneginf(one).any()) for one in arrays.values())
        found[name] = [*(one for one in arrays if not one.startswith(MASK)), *([_INFINITE] if held else [])]
    return found


# Running


@dataclass(frozen=True, kw_only=True)
class Shown:
    """How a script ended: its exit `code` (None if it was ended after `seconds`), what it `printed`, and the
    `exception` that ended it, with its `message`."""

    code: int | None
    seconds: float
    printed: str
    exception: str = ""
    message: str = ""

    @property
    def error(self) -> float | None:
        """Return the largest error in the message of a failed comparison; None if it isn't one."""
        found = [float(one) for one in _OFF.findall(self.message)] if self.exception == "AssertionError" else []
        return max(found, key=lambda one: (one != one, one)) if found else None


def run_script(
    folder: Path,
    *,
    python: str = sys.executable,
    seconds: float,
    memory_bytes: int = 0,
    arguments: tuple[str, ...] = (),
) -> Shown:
    """Run the script in `folder` with `python`, isolated from this package: by environment and search path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HWCOMPAT"))}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "CI": "true"}
    environment |= {"ORT_DISABLE_TELEMETRY": "1"}
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as work:
        ended = run(
            [python, "-I", str((folder / SCRIPT).resolve()), *arguments],
            limit_s=seconds,
            cwd=work,
            environment=environment,
            memory_bytes=memory_bytes,
        )
    kind, message = last_exception(ended.stderr[-_LONGEST_READ:])
    return Shown(
        code=ended.returncode,
        seconds=ended.seconds,
        printed=ended.stdout[-_LONGEST_READ:],
        exception=kind,
        message=message,
    )


def last_exception(log: str) -> tuple[str, str]:
    """Return the class, without its module, and the message of the last exception of a traceback; else empty."""
    _, found, rest = log.rpartition("Traceback (most recent call last):\n")
    if not found:
        return "", ""
    lines = rest.splitlines()
    start = next((place for place, line in enumerate(lines) if line and not line.startswith(" ")), None)
    raised = _RAISED.match("\n".join(lines[start:])) if start is not None else None
    if raised is None:
        return "", ""
    return raised["kind"].rpartition(".")[2], (raised["message"] or "").strip()
