"""Worker of target tpu: it lowers programs of torch.export with torchax and runs them on a PJRT device.

It runs with another environment's Python and imports only its neighbors of the product, torch, torchax, jax and
NumPy. An operator without a lowering is refused before compilation. Sources: torchax's `export.py` (its interpreter
of exported programs) and jax's documentation of ahead-of-time lowering.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import platform as host
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LANGUAGE = "language.json"
"""Extra file of a program: the names of its inputs and outputs, in order."""

STABLEHLO, WEIGHTS = "model.stablehlo", "weights.npz"
CPU_FLAGS = "--xla_backend_optimization_level=0"
"""Options of XLA's CPU client: LLVM's passes cost more than they save on one pass of a small model."""

_ASSERTIONS = ("_assert", "sym_constrain_range")
"""Prefixes of operators that check shapes while a program is traced, and compute nothing."""

_compiled: dict[Any, Any] = {}


def jax_on(platform: str) -> Any:
    """Return jax with full-precision products and a single platform, so that there is no fallback."""
    os.environ["JAX_PLATFORMS"] = platform
    if platform == "cpu":
        os.environ["XLA_FLAGS"] = CPU_FLAGS
    jax = importlib.import_module("jax")
    jax.config.update("jax_platforms", platform)
    jax.config.update("jax_default_matmul_precision", "highest")
    return jax


@functools.cache
def lowerings() -> Any:
    """Return torchax, with its table of lowerings and decompositions.

    torchax 0.0.13 names overloads with named dimensions, which torch 2.13 no longer has. They appear only in lists of
    what it would autocast or decompose, so that any object may replace them.
    """
    packet = importlib.import_module("torch._ops").OpOverloadPacket
    known = packet.__getattr__

    def with_names(self: Any, name: str) -> Any:
        try:
            return known(self, name)
        except AttributeError:
            if "name" not in name.lower() or name.startswith("__"):
                raise
            return object()

    packet.__getattr__ = with_names
    try:
        for part in ("torchax", "torchax.decompositions", "torchax.ops.ops_registry"):
            importlib.import_module(part)
    finally:
        packet.__getattr__ = known
    torchax = sys.modules["torchax"]
    torchax.default_env()  # fills the table
    return torchax


def lowering_of(target: Any) -> Any:
    """Return torchax's entry for an operator of torch, or None if it has none that is made of JAX."""
    table = lowerings().ops.ops_registry.all_aten_ops
    found = table.get(target) or table.get(target.overloadpacket)
    return found if found is not None and found.is_jax_function else None


def _safe_softmax(scores: Any, dim: int, dtype: Any = None) -> Any:
    """Return a softmax that is 0 if all scores are minus infinity, where torch's has no finite gradient.

    XLA differentiates the lowered program, and NaN from a branch that isn't taken reaches the gradient.
    """
    torch = importlib.import_module("torch")
    masked = (scores == float("-inf")).all(dim, keepdim=True)
    found = torch.softmax(torch.where(masked, 0.0, scores), dim, dtype=dtype)
    return torch.where(masked, 0.0, found)


def _is_operator(target: Any) -> bool:
    return isinstance(target, importlib.import_module("torch._ops").OpOverload)


def _computes(node: Any) -> bool:
    """Return whether a node calls an operator of torch: neither Python's arithmetic on shapes nor a check of them."""
    if node.op != "call_function" or not _is_operator(node.target):
        return False
    return not node.target._schema.name.split("::")[-1].startswith(_ASSERTIONS)


class LoweredProgram:
    """A program of torch.export as a function of JAX: `compute(states, arguments)` returns the outputs in order."""

    def __init__(self, file: str) -> None:
        torch, torchax = importlib.import_module("torch"), lowerings()
        extra = {LANGUAGE: ""}
        exported = torch.export.load(file, extra_files=extra)
        table = {**torch.export.default_decompositions(), **torchax.decompositions.DECOMPOSITIONS}
        table[torch.ops.aten._safe_softmax.default] = _safe_softmax
        attention = importlib.import_module("torch.nn.attention")
        shapes = importlib.import_module("torch.fx.experimental._config")
        # torch's CPU kernel declares other strides than it has, so that views of its result fail. A length that is 1
        # in the example stays dynamic.
        with attention.sdpa_kernel(attention.SDPBackend.MATH), shapes.patch(backed_size_oblivious=True):
            self.exported = exported.run_decompositions(table)
        language = json.loads(extra[LANGUAGE])
        self.inputs: list[str] = language["inputs"]
        self.outputs: list[str] = language["outputs"]
        self.operators = Counter(str(node.target) for node in self.nodes if _computes(node))
        missing = Counter(str(n.target) for n in self.nodes if _computes(n) and lowering_of(n.target) is None)
        if missing:
            named = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
            raise NotImplementedError(f"torchax has no lowering for {named}")
        kinds = importlib.import_module("torch.export.graph_signature")
        signature = self.exported.graph_signature
        given = signature.input_specs
        self.stated = [spec for spec in given if spec.kind != kinds.InputKind.USER_INPUT]
        self.parameters = {s.arg.name: s.target for s in given if s.kind == kinds.InputKind.PARAMETER}
        own = [spec.kind == kinds.OutputKind.USER_OUTPUT for spec in signature.output_specs]
        self.places = [place for place, is_own in enumerate(own) if is_own]
        arguments = {spec.arg.name for spec in given if spec.kind == kinds.InputKind.USER_INPUT}
        self.dtypes = [n.meta["val"].dtype for n in self.nodes if n.op == "placeholder" and n.name in arguments]
        self.interpreter = _interpreter(self.exported.graph_module)

    @property
    def nodes(self) -> Any:
        return self.exported.graph.nodes

    def states(self) -> list[Any]:
        """Return parameters, buffers and constants as arrays on the device."""
        held = {**self.exported.state_dict, **self.exported.constants}
        found: list[Any] = lowerings().default_env().t2j_copy([held[spec.target].detach() for spec in self.stated])
        return found

    def compute(self, states: Any, arguments: Any) -> list[Any]:
        """Return the outputs of the user's program, in order."""
        results = self.interpreter.run(*states, *arguments, enable_io_processing=False)
        return [results[place] for place in self.places]

    def shapes(self, states: Any, arguments: Any) -> list[Any]:
        """Return shapes and dtypes of the outputs without computing them."""
        found: list[Any] = importlib.import_module("jax").eval_shape(self.compute, states, arguments)
        return found

    def arguments(self, arrays: Mapping[str, Any]) -> list[Any]:
        """Return the inputs in order, floating-point ones in the dtype of the program."""
        np = importlib.import_module("numpy")
        names = importlib.import_module("torchax.ops.mappings").t2j_dtype
        jnp = importlib.import_module("jax.numpy")
        given = zip(self.inputs, self.dtypes, strict=True)
        return [
            jnp.asarray(np.asarray(arrays[name]), dtype=names(dtype) if dtype.is_floating_point else None)
            for name, dtype in given
        ]

    def learning(self, outputs: list[str]) -> list[str]:
        """Return the placeholders of parameters that floating-point results depend on with a gradient."""
        last = next(node for node in self.nodes if node.op == "output")
        named = dict(zip(self.outputs, (last.args[0][place] for place in self.places), strict=True))
        waiting, seen = [named[name] for name in outputs], set()
        while waiting:
            node = waiting.pop()
            if node not in seen and _passes_gradients(node):
                seen.add(node)
                waiting += node.all_input_nodes
        return [node.name for node in self.nodes if node in seen and node.name in self.parameters]


def _passes_gradients(node: Any) -> bool:
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        return True
    return "detach" not in str(node.target) and hasattr(value, "is_floating_point") and value.is_floating_point()


def _interpreter(module: Any) -> Any:
    fx = importlib.import_module("torch.fx")

    class Lowering(fx.Interpreter):  # type: ignore[misc, name-defined]
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if not _is_operator(target):
                return super().call_function(target, args, kwargs)
            if target._schema.name.split("::")[-1].startswith(_ASSERTIONS):
                return None
            found = lowering_of(target)
            more = {"env": lowerings().default_env()} if found.needs_env else {}
            return found.func(*args, **kwargs, **more)

    return Lowering(module)


class Saved:
    """A StableHLO file with its weights, with the methods of `LoweredProgram`."""

    def __init__(self, folder: str) -> None:
        export = importlib.import_module("jax.export")
        language = json.loads((Path(folder) / LANGUAGE).read_text(encoding="utf-8"))
        self.inputs, self.outputs = language["inputs"], language["outputs"]
        self.dtypes = language["dtypes"]
        self.operators: Counter[str] = Counter()
        self.exported = export.deserialize(bytearray((Path(folder) / STABLEHLO).read_bytes()))
        self.folder = folder

    def states(self) -> list[Any]:
        """Return the weights beside the file, each in the dtype of the program."""
        np, jnp = importlib.import_module("numpy"), importlib.import_module("jax.numpy")
        with np.load(Path(self.folder) / WEIGHTS) as file:
            arrays = [file[name] for name in file.files]
        avals = self.exported.in_avals
        return [jnp.asarray(array, dtype=avals[place].dtype) for place, array in enumerate(arrays)]

    def compute(self, states: Any, arguments: Any) -> list[Any]:
        found: list[Any] = self.exported.call(states, arguments)
        return found

    def arguments(self, arrays: Mapping[str, Any]) -> list[Any]:
        jnp = importlib.import_module("jax.numpy")
        return [jnp.asarray(arrays[name], dtype=dtype) for name, dtype in zip(self.inputs, self.dtypes, strict=True)]


@functools.cache
def _program(path: str) -> Any:
    return Saved(path) if Path(path).is_dir() else LoweredProgram(path)


@functools.cache
def _states(path: str) -> Any:
    return _program(path).states()


def _arrays(file: str) -> dict[str, Any]:
    with importlib.import_module("numpy").load(file) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _shapes(arguments: Any) -> tuple[Any, ...]:
    leaves = importlib.import_module("jax").tree.leaves(arguments)
    return tuple((tuple(one.shape), str(one.dtype)) for one in leaves)


def _once(path: str, what: str, function: Any, *arguments: Any) -> Any:
    key = (path, what, _shapes(arguments))
    if key not in _compiled:
        _compiled[key] = importlib.import_module("xla_compiled").XlaExecutable(function, *arguments)
    return _compiled[key]


def _write(file: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays from host memory; bfloat16, which NumPy's files lack, as float32."""
    np = importlib.import_module("numpy")
    plain = {name: np.asarray(one) for name, one in arrays.items()}
    np.savez(file, **{n: a if a.dtype.kind in "fiub" else a.astype(np.float32) for n, a in plain.items()})


def describe(*, platform: str) -> dict[str, Any]:
    """Return versions and the platform's devices. Raise PJRT's error if there are none."""
    jax = jax_on(platform)
    devices = jax.devices()
    return {
        "jax": jax.__version__,
        "jaxlib": importlib.import_module("jaxlib").__version__,
        "torchax": lowerings().__version__,
        "torch": importlib.import_module("torch").__version__,
        "machine": host.machine(),
        "flags": os.environ.get("XLA_FLAGS", ""),
        "runtime": str(devices[0].client.platform_version).splitlines()[0],
        "devices": [
            {
                "name": str(one),
                "kind": one.device_kind,
                "platform": one.platform,
                "coords": list(getattr(one, "coords", None) or ()),
            }
            for one in devices
        ],
        "memory": (devices[0].memory_stats() or {}).get("bytes_limit"),
    }


def run(*, platform: str, program: str, inputs: str, outputs: str, execution: str) -> dict[str, Any]:
    """Run a pass: read the file `inputs`, and write the files `outputs` and `execution` (where it ran)."""
    jax_on(platform)
    found, states = _program(program), _states(program)
    arguments = found.arguments(_arrays(inputs))
    compiled = _once(program, "run", found.compute, states, arguments)
    started = time.perf_counter()
    results = compiled(states, arguments)
    seconds = time.perf_counter() - started
    _write(outputs, dict(zip(found.outputs, results, strict=True)))
    proof = {**compiled.proof(results), "operators": dict(found.operators), "seconds": seconds}
    Path(execution).write_text(json.dumps(proof), encoding="utf-8")
    return proof


def gradients(
    *, platform: str, program: str, inputs: str, cotangents: str, outputs: str, execution: str
) -> dict[str, Any]:
    """Write the gradients of parameters, by name, for the cotangents of outputs in the file `cotangents`."""
    jax = jax_on(platform)
    found, states = _program(program), _states(program)
    arguments, given = found.arguments(_arrays(inputs)), _arrays(cotangents)
    names = [spec.arg.name for spec in found.stated]
    learning = found.learning(list(given))
    places = [names.index(name) for name in learning]
    results = dict(zip(found.outputs, found.shapes(states, arguments), strict=True))
    weights = {name: jax.numpy.asarray(given[name], dtype=results[name].dtype) for name in given}

    def pull(learned: Any, kept: Any, arguments: Any, weights: Any) -> Any:
        def forward(learned: Any) -> Any:
            every = list(kept)
            for place, one in zip(places, learned, strict=True):
                every[place] = one
            named = dict(zip(found.outputs, found.compute(every, arguments), strict=True))
            return {name: named[name] for name in weights}

        return jax.vjp(forward, learned)[1](weights)[0]

    learned = [states[place] for place in places]
    compiled = _once(program, "gradients", pull, learned, states, arguments, weights)
    got = compiled(learned, states, arguments, weights)
    _write(outputs, {found.parameters[name]: one for name, one in zip(learning, got, strict=True)})
    proof: dict[str, Any] = compiled.proof(got)
    Path(execution).write_text(json.dumps(proof), encoding="utf-8")
    return proof


def save(*, platform: str, program: str, inputs: str, folder: str, lower_for: list[str]) -> dict[str, Any]:
    """Save the program as StableHLO for these platforms, with its weights, in a folder that `run` accepts."""
    jax = jax_on(platform)
    export = importlib.import_module("jax.export")
    found, states = _program(program), _states(program)
    arguments = found.arguments(_arrays(inputs))
    made = export.export(jax.jit(found.compute), platforms=lower_for)(states, arguments)
    (Path(folder) / STABLEHLO).write_bytes(made.serialize())
    _write(str(Path(folder) / WEIGHTS), {f"{number:05}": one for number, one in enumerate(states)})
    language = {"inputs": found.inputs, "outputs": found.outputs, "dtypes": [str(one.dtype) for one in arguments]}
    (Path(folder) / LANGUAGE).write_text(json.dumps(language), encoding="utf-8")
    return {"platforms": list(made.platforms), "bytes": (Path(folder) / STABLEHLO).stat().st_size}


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
    importlib.import_module("serve").serve({"describe": describe, "run": run, "gradients": gradients, "save": save})
