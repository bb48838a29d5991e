"""What a mesh has to know of a model, asked of a child process, which builds it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generators.derivation.on_demand import recipe_for
from generators.models.inputs import LENGTHS, make_inputs
from hardware.errors import ModelError, echo
from hardware.process import NoAnswer, ask
from hwcompat.plugins.placement.mesh.axes import Split
from hwcompat.plugins.placement.mesh.case import MeshModel
from hwcompat.plugins.placement.mesh.figures import ModelFigures

if TYPE_CHECKING:
    from generators.models.inputs import Array

_LONGEST_S = 600.0
_BATCH = 4


@dataclass(frozen=True, kw_only=True)
class MeshSubject:
    """A model type as a mesh takes it: the tiny model with its figures and inputs, which the check runs, and the
    figures of the real one. `real` is None where they can't be had, `no_real` says why. `whose` says whose
    configuration that is."""

    tiny: MeshModel
    tiny_figures: ModelFigures
    inputs: Mapping[str, Mapping[str, Any]]
    real: ModelFigures | None
    whose: str
    no_real: str

    def arrays(self, batch: int) -> dict[str, Array]:
        """Inputs of so many examples, the rows of unlike lengths so that a dropped mask shows."""
        lengths = [(*LENGTHS, 12, LENGTHS[0])[place % 4] for place in range(batch)]
        return make_inputs(self.inputs, 0, lengths)


def batch_of(split: Split, microbatches: int) -> int:
    """The smallest batch from `_BATCH` on that a split divides into equal parts."""
    step = split.data * microbatches
    return step * -(-_BATCH // step)


def mesh_subject(name: str, precision: str = "float32") -> MeshSubject:
    """What a mesh has to know of a type or a checkpoint folder; seconds, in a child. Raises `ModelError`."""
    found = _ask([name], precision, True)[name]
    if "why" in found:
        raise ModelError(f"{echo(name)} can't be put on a mesh", why=found["why"])
    return _subject(found)


def reasons_of(names: Sequence[str]) -> tuple[dict[str, MeshSubject], dict[str, str]]:
    """What can be had of many types at their tiny size, and why the others can't."""
    found = _ask(names, "float32", False)
    good = {name: _subject(one) for name, one in found.items() if "why" not in one}
    return good, {name: one["why"] for name, one in found.items() if "why" in one}


def _subject(found: Mapping[str, Any]) -> MeshSubject:
    return MeshSubject(
        tiny=MeshModel(**found["tiny"]),
        tiny_figures=ModelFigures.from_dict(found["tiny_figures"]),
        inputs=found["inputs"],
        real=ModelFigures.from_dict(found["real"]) if found["real"] else None,
        whose=found["whose"],
        no_real=found["no_real"],
    )


def _ask(names: Sequence[str], precision: str, real: bool) -> dict[str, Any]:
    for name in names:
        if not Path(name).is_dir():
            recipe_for(name)  # a missing one is derived and kept, or refused with its reason
    question = {"names": list(names), "precision": precision, "real": real}
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    try:
        found: dict[str, Any] = ask(f"{__package__}.child", question, limit_s=_LONGEST_S, environment=offline)
    except NoAnswer as error:
        raise ModelError("nothing is known of the model", why=str(error)) from error
    return found
