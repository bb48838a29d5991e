"""`DeviceRun`: what a model's layers, outputs and decoded tokens are on one target.

Each target runs in a child process, so that a crash ends one side and runtimes don't meet. Run as a module, this is
the child. A run can be kept in a file, and compared with a target of another machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.recipes.on_demand import recipe_for
from hwcompat.hardware.backends.base import BaseBackend, ModelInput
from hwcompat.hardware.backends.factory import get_backend
from hwcompat.hardware.cell import MODULE_TASK
from hwcompat.hardware.errors import BackendUnavailable, BrokenInput, HwCompatError, echo
from hwcompat.hardware.export.routes import versions_of
from hwcompat.hardware.files import write_whole
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.process import answer
from hwcompat.hardware.redaction import redact_all
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing import reference

from ..localization.localize_cell import built, subject_of
from ..localization.tensor_errors import padding_of, unpadded
from .layer_outputs import return_layers

if TYPE_CHECKING:
    from hwcompat.generators.models.recipe import Recipe
    from hwcompat.hardware.compare import Array

EXACT = "float64 on the CPU"
FACTS = "facts.json"
MOST_KEPT = 65_536
"""The largest number of elements of a tensor in a file; of a larger one evenly spaced elements are kept, and padded
positions are 0."""
LARGEST_FILE = 256 * 2**20
_VERSION = 1
_LONGEST = 500


@dataclass(frozen=True, kw_only=True)
class DeviceRun:
    """A model's forward pass and decoding on one side.

    `tensors` are layers (their names begin with `layer:`) and outputs, `shapes` their shapes; `tokens` and `logits`
    have shape (batch, steps) and (batch, steps, vocabulary). They are None if the side doesn't decode, for the reason
    `why_not_decoded`, or because decoding failed (`decode_error`). `weights` is a hash of weights and inputs. `error`
    says why nothing ran.
    """

    target: str
    device: str
    model: str
    task: str
    precision: str
    weights: str = ""
    versions: str = ""
    tensors: Mapping[str, Array] = field(default_factory=dict)
    shapes: Mapping[str, list[int]] = field(default_factory=dict)
    padding: tuple[Array, ...] = ()
    tokens: Array | None = None
    logits: Array | None = None
    why_not_decoded: str = ""
    decode_error: str = ""
    error: str = ""
    is_thinned: bool = False

    def of(self, name: str, *, thinned: bool) -> Array:
        """Return a tensor, or the elements of it that files keep."""
        tensor = self.tensors[name]
        if not thinned or self.is_thinned:
            return tensor
        counts = unpadded(tensor.shape, self.padding)
        flat = np.where(True if counts is None else counts, tensor, 0).reshape(-1)
        return flat[:: max(1, -(-flat.size // MOST_KEPT))]


def write_run(run: DeviceRun, path: Path, *, thinned: bool) -> None:
    """Write a run as an `.npz` file, with its facts as JSON in an array of bytes."""
    facts = {
        "schema_version": _VERSION,
        **{
            name: getattr(run, name)
            for name in ("target", "device", "model", "task", "precision", "weights", "versions", "error")
        },
        "why_not_decoded": run.why_not_decoded,
        "decode_error": run.decode_error,
        "shapes": {name: list(tensor.shape) for name, tensor in run.tensors.items()},
        "is_thinned": thinned,
        "names": list(run.tensors),
    }
    arrays: dict[str, Any] = {
        f"tensor{number}": run.of(name, thinned=thinned) for number, name in enumerate(run.tensors)
    }
    arrays |= {f"padding{number}": mask for number, mask in enumerate(run.padding)}
    if run.tokens is not None and run.logits is not None:
        arrays |= {"tokens": run.tokens, "logits": run.logits}
    arrays[FACTS] = np.frombuffer(json.dumps(redact_all(facts)).encode(), dtype=np.uint8)
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    write_whole(path, packed.getvalue())


def read_run(path: Path) -> DeviceRun:
    """Return the run in a file of `write_run`. Raises `BrokenInput`."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"it is larger than {LARGEST_FILE >> 20} MiB")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            facts = json.loads(kept[FACTS].tobytes())
            if facts.pop("schema_version") != _VERSION:
                raise ValueError("another version of hwcompat wrote it")
            names = facts.pop("names")
            found = DeviceRun(
                **facts,
                tensors={str(name): kept[f"tensor{number}"] for number, name in enumerate(names)},
                padding=tuple(kept[name] for name in kept.files if name.startswith("padding")),
                tokens=kept["tokens"] if "tokens" in kept.files else None,
                logits=kept["logits"] if "logits" in kept.files else None,
            )
            if set(found.shapes) != set(found.tensors):
                raise ValueError("its shapes don't fit its tensors")
            return found
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        raise BrokenInput(
            f"{echo(str(path))} isn't a kept run of compare-devices", why=one_line(str(error))
        ) from error


# In the child


def _run_on(target: Target, recipe: Recipe, precision: str, steps: int) -> DeviceRun:
    """Return the run of a recipe's model on a target. A failure of the runtime is the result."""
    inputs = dict(make_inputs(recipe.inputs, 0))
    model = built(recipe)
    facts: dict[str, Any] = {
        "target": str(target),
        "model": recipe.model_type,
        "task": recipe.task,
        "precision": precision,
        "weights": _weights_of(model, inputs),
        "padding": padding_of(inputs),
    }
    with get_backend(target) as backend:
        if why := backend.unavailable():
            raise BackendUnavailable(f"{target} isn't available here", why=why)
        facts["versions"] = versions_of(tuple(dict.fromkeys(("torch", "transformers", *backend.EXPIRES_ON))))
        facts["device"] = backend.get_device_info().device_name or str(target)
        try:
            backend.require(precision)
            subject = ModelInput(
                model=return_layers(model),
                task=MODULE_TASK,
                identity=f"{reference.identity_of(model)} layers",
                masked_by=recipe.masked_by,
            )
            runnable = backend.load(subject, inputs, precision)
            facts["tensors"] = dict(runnable(**inputs))
            runnable.close()
        except HwCompatError:
            raise
        except Exception as error:  # a runtime may raise anything, which is the result
            return DeviceRun(**facts, error=f"{type(error).__name__}: {one_line(str(error), longest=_LONGEST)}")
        return DeviceRun(**facts, **_decoded(backend, recipe, inputs, precision, steps))


def _decoded(
    backend: BaseBackend, recipe: Recipe, inputs: Mapping[str, Array], precision: str, steps: int
) -> dict[str, Any]:
    """Return tokens and logits, or why there are none."""
    if recipe.generate == "none" or not steps:
        return {"why_not_decoded": "the model doesn't decode" if steps else "no steps were asked for"}
    try:
        runnable = backend.load(subject_of(recipe), inputs, precision)
        if "generate" not in runnable.can:
            return {"why_not_decoded": f"{backend.target} doesn't decode this model"}
        found = runnable.generate(inputs, steps=steps)
        runnable.close()
    except HwCompatError:
        raise
    except Exception as error:  # as above
        return {"decode_error": one_line(f"{type(error).__name__}: {error}", longest=_LONGEST)}
    return {"tokens": found.tokens, "logits": found.logits}


def _exact(recipe: Recipe, steps: int) -> DeviceRun:
    """Return the reference: the same modules in float64, decoding without a cache."""
    inputs = dict(make_inputs(recipe.inputs, 0))
    plain = built(recipe)
    facts: dict[str, Any] = {"weights": _weights_of(plain, inputs), "padding": padding_of(inputs)}
    exact = reference.as_reference(plain)
    if recipe.generate != "none" and steps:
        found = reference.float64_generation(exact, inputs, steps=steps)
        facts |= {"tokens": found.tokens, "logits": found.logits}
    facts["tensors"] = reference.float64_outputs(return_layers(exact), inputs)
    return DeviceRun(target=EXACT, device="", model=recipe.model_type, task=recipe.task, precision="float64", **facts)


def _weights_of(model: Any, inputs: Mapping[str, Array]) -> str:
    """Return a hash of weights and inputs that is the same on every machine and in every version of torch."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode() + tensor.float().contiguous().numpy().tobytes())
    for name, array in inputs.items():
        digest.update(f"{name}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def _answer(asked: Mapping[str, Any]) -> str:
    recipe = recipe_for(asked["model"], asked["task"])
    if asked["target"]:
        run = _run_on(Target.parse(asked["target"]), recipe, asked["precision"], asked["steps"])
    else:
        run = _exact(recipe, asked["steps"])
    write_run(run, Path(asked["file"]), thinned=False)
    return str(asked["file"])


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    answer(_answer)
