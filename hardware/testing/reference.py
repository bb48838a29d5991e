"""The reference: the same weights on the CPU in float64, computed once and kept for all targets."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends._torch import loss_gradients
from ..backends.base import Generation
from ..compare import ReferenceNotFinite, is_meant
from ..files import write_whole
from ..model.calls import to_arrays, to_tensors, without_cache
from ..model.greedy_decoding import greedy
from ..model.outputs import nested, results
from .attributes import attributes_of
from .checkpoints import revision_of
from .widened_weights import widen

if TYPE_CHECKING:
    import torch

    from ..compare import Array, Outputs


_LIBRARIES = frozenset({"torch", "transformers", "diffusers", __name__.partition(".")[0]})
"""Large packages of which only the files named here and those with a module's class count, since the loaded parts
differ between processes."""
_OWN_SOURCES = (
    *("backends/_torch.py", "model/calls.py", "model/outputs.py", "model/greedy_decoding.py"),
    *("testing/reference.py", "testing/widened_weights.py"),
)
"""Files of our package that compute outputs of a model and convert them to arrays."""
_SHARED_SOURCES = {
    "transformers": (
        "modeling_utils.py",
        "masking_utils.py",
        "modeling_attn_mask_utils.py",
        "modeling_rope_utils.py",
        "modeling_layers.py",
        "cache_utils.py",
        "activations.py",
        "pytorch_utils.py",
        "generation/utils.py",
    ),
    "diffusers": (
        "configuration_utils.py",
        "models/modeling_utils.py",
        "models/attention_processor.py",
        "models/attention_dispatch.py",
        "models/embeddings.py",
        "models/autoencoders/vae.py",
    ),
}
"""Files of a library that every model computes with."""


LARGE = 2**26
"""Bytes of a model in float64 above which its weights aren't converted to float64 as a whole."""

_GRADIENT_BYTES = 20
"""Bytes for each parameter in a backward check: the target's gradient in float32, and both as float64 arrays."""


def as_reference(model: torch.nn.Module, *, large: int = LARGE) -> torch.nn.Module:
    """Return `model`, changed in place to float64, with experts computed one by one (grouped kernels have no
    float64).

    A model of `large` bytes in float64 keeps its weights and widens them operator by operator, with the same results.
    """
    import torch

    for module in with_eager_experts(model).modules():
        for name, value in vars(module).items():  # tensors besides parameters and buffers
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                setattr(module, name, value.double())
    in_float64 = 8 * sum(parameter.numel() for parameter in model.parameters())
    return (widen(model) if in_float64 >= large else model.double()).eval()


def with_eager_experts(model: torch.nn.Module) -> torch.nn.Module:
    """Return `model`, changed in place to compute experts one by one."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "_experts_implementation"):
            config._experts_implementation = "eager"
    return model


def bytes_for_gradients(model: torch.nn.Module) -> int:
    """Return the bytes that comparing all gradients of `model` with float64 takes beyond the model itself."""
    return _GRADIENT_BYTES * int(sum(parameter.numel() for parameter in model.parameters()))


@contextlib.contextmanager
def default_float64() -> Iterator[None]:
    """Use float64 for tensors that modeling code makes without a dtype, above all masks: float64's smallest number
    doesn't fit into a float32 mask."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _widened_casts():
            yield
    finally:
        torch.set_default_dtype(before)


def _widened_casts() -> Any:
    """Return a mode in which modeling code that requests float32, by `float()`, `to` or a `dtype`, gets float64.

    Such casts are meant to widen half precision. Here they would narrow: the mask's number would become minus
    infinity and a row of padding NaN, and a norm, a softmax or a state would be no more exact than the target's.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    def wide(value: Any) -> Any:
        return torch.float64 if value is torch.float32 else value

    class WidenedCasts(TorchFunctionMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            function = torch.Tensor.double if function is torch.Tensor.float else function
            return function(*map(wide, args), **{name: wide(value) for name, value in (kwargs or {}).items()})

    return WidenedCasts()


def float64_outputs(model: torch.nn.Module, inputs: Mapping[str, Array], **more: Any) -> dict[str, Array]:
    """Return the outputs of a float64 model, called with arguments `more` too. Raises `ReferenceNotFinite`, since
    nothing can be compared with NaN."""
    return float64_call(model, inputs, lambda returned: to_arrays(results(returned)), **more)


def float64_call(
    model: torch.nn.Module, inputs: Mapping[str, Array], read: Callable[[Any], dict[str, Array]], **more: Any
) -> dict[str, Array]:
    """Return what `read` finds in what a float64 model returns. Raise as `float64_outputs` does."""
    import torch

    tensors = nested(to_tensors(inputs, "cpu", torch.float64))
    with torch.no_grad(), default_float64():
        outputs = read(model(**tensors, **without_cache(model), **more))
    _require_meant(outputs)
    return outputs


def float64_generation(
    model: torch.nn.Module, inputs: Mapping[str, Array], *, steps: int, use_cache: bool = False
) -> Generation:
    """Decode greedily in float64; a reference has no cache, so that a fault in the cache can't be in both."""
    import torch

    with default_float64():
        generation = greedy(model, to_tensors(inputs, "cpu", torch.float64), steps=steps, use_cache=use_cache)
    _require_meant({"logits": generation.logits})
    return generation


def float64_gradients(
    model: torch.nn.Module,
    inputs: Mapping[str, Array],
    masked_by: Mapping[str, str] = MappingProxyType({}),
    *,
    training: bool = False,
) -> dict[str, Array]:
    """Return gradients in float64 by parameter name; `training` is for models that need training mode."""
    import torch

    with default_float64():
        gradients = loss_gradients(model, to_tensors(inputs, "cpu", torch.float64), masked_by, training=training)
    _require_finite(gradients)
    return gradients


def gradient_summary(
    model: torch.nn.Module, inputs: Mapping[str, Array], masked_by: Mapping[str, str], *, training: bool = False
) -> tuple[int, float]:
    """Return how many parameters of a reference get a gradient, and the norm of all gradients as one vector.

    Gradients aren't kept, which saves memory, except in `training` mode, in which a model that recomputes its layers
    adds to a gradient several times.
    """
    import torch

    found: dict[str, float] = {}

    def note(name: str, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            found[name] = float(parameter.grad.abs().double().square().sum())
        if not training:
            parameter.grad = None

    handles = [
        parameter.register_post_accumulate_grad_hook(functools.partial(note, name))
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    try:
        with default_float64():
            loss_gradients(model, to_tensors(inputs, "cpu", torch.float64), masked_by, training=training)
    finally:
        for handle in handles:
            handle.remove()
    return len(found), math.sqrt(sum(found.values()))


def _require_meant(arrays: Outputs) -> None:
    for name, array in arrays.items():
        if not is_meant(array):
            raise ReferenceNotFinite(f"the float64 reference is not finite in {name}: nothing can be compared")


def _require_finite(arrays: Outputs) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ReferenceNotFinite(f"the float64 reference is not finite in {name}: nothing can be compared")


def identity_of(model: torch.nn.Module) -> str:
    """Return a hash of a model's configuration, modules with their attributes, weights, modeling source and library
    versions, in hexadecimal."""
    import torch

    digest = hashlib.sha256()
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "to_json_string"):
        digest.update(config.to_json_string(use_diff=False).encode())
    for line in attributes_of(model):
        digest.update(f"{line}\n".encode(errors="surrogatepass"))
    digest.update(sources_of(model))
    for package in ("torch", _library_of(model), "numpy"):
        digest.update(f"{package}=={metadata.version(package)}".encode())
    if revision := revision_of(model):
        digest.update(revision.encode())
        return digest.hexdigest()
    for name, tensor in sorted(_all_tensors(model), key=lambda named: named[0]):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        # As bytes: NumPy has no bfloat16, which tables of a model may have.
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _all_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all tensors that a model computes with, in its state dictionary or not."""
    import torch

    saved = model.state_dict()
    yield from saved.items()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name not in saved)
    for module_name, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield f"{module_name}.{name}", value


def _library_of(model: torch.nn.Module) -> str:
    """Return the library of a model; a user's own module counts as one of transformers, whose parts it may use."""
    return "diffusers" if type(model).__module__.startswith("diffusers.") else "transformers"


def sources_of(model: torch.nn.Module) -> bytes:
    """Return a hash of the source that computes: the files of all modules' classes, the other loaded files of their
    packages, the library's shared files, and our own that run a model and read its outputs.

    An edited installation must not use an export or a reference from before the edit.
    """
    files = set()
    for module in model.modules():
        with contextlib.suppress(TypeError):  # a class that was made without a file
            files.add(inspect.getsourcefile(type(module)))
    files -= {None, *(f for f in files if f and "/torch/" in Path(f).as_posix())}
    packages = {type(module).__module__.partition(".")[0] for module in model.modules()} - _LIBRARIES
    for name, loaded in list(sys.modules.items()):
        if name.partition(".")[0] in packages:
            files.add(getattr(loaded, "__file__", None))
    with contextlib.suppress(ImportError):
        library = _library_of(model)
        root = Path(str(importlib.import_module(library).__file__)).parent
        files |= {str(root / name) for name in _SHARED_SOURCES[library]}
        files |= {str(path) for path in (root / "integrations").glob("*.py")}
    files |= {str(Path(__file__).parents[1] / name) for name in _OWN_SOURCES}
    digest = hashlib.sha256()
    for file in sorted(filter(None, files)):
        if Path(file).is_file():
            digest.update(Path(file).name.encode() + Path(file).read_bytes())
    return digest.digest()


class ReferenceStore:
    """Reference outputs in safetensors files that are named by what they depend on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, identity: str, inputs: Mapping[str, Array]) -> Path:
        digest = hashlib.sha256(f"{identity}{digest_of(inputs)}".encode())
        return self.folder / f"{digest.hexdigest()[:32]}.safetensors"

    def get(self, identity: str, inputs: Mapping[str, Array]) -> dict[str, Array] | None:
        """Return the outputs kept for these inputs, or None if there are none or the file is broken."""
        found = self.with_method(identity, inputs)
        return None if found is None else found[0]

    def with_method(self, identity: str, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], str] | None:
        """Return the same, and how they were computed."""
        path = self._path(identity, inputs)
        if not path.is_file():
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:  # type: ignore[no-untyped-call]
                facts: dict[str, Any] = file.metadata() or {}
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        except (SafetensorError, OSError, ValueError):
            return None
        if facts.get("identity") != identity or facts.get("checksum") != digest_of(found):
            return None
        return found, str(facts.get("method", ""))

    def put(
        self, identity: str, inputs: Mapping[str, Array], outputs: Mapping[str, Array], *, method: str = ""
    ) -> None:
        """Keep outputs, and how they were computed; the file appears whole or not at all."""
        from safetensors.numpy import save

        # Not ascontiguousarray, which turns a scalar into an array of one element.
        arrays = {key: np.asarray(value, order="C") for key, value in outputs.items()}
        facts = {"identity": identity, "checksum": digest_of(arrays), "method": method}
        write_whole(self._path(identity, inputs), save(arrays, metadata=facts), mode=0o600)


def digest_of(arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of named arrays: names, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(json.dumps([name, str(arrays[name].dtype), list(arrays[name].shape)]).encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
