"""Gradients of one model: in which mode there are any, and whether those in float32 are those in float64."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hardware.compare import Array, compare_gradients
from hardware.testing.reference import as_reference, float64_gradients, float64_outputs
from hardware.testing.widened import copy_over

from .measure import NOISE

if TYPE_CHECKING:
    import torch

_WORDS = "model.train()"
"""What a model says that has gradients in training mode alone: Reformer computes its layers anew on the way back."""


def trains_only(model: torch.nn.Module, inputs: Mapping[str, Array]) -> bool:
    """Whether a float32 model has gradients in training mode alone: it says so, or in evaluation mode it keeps from
    pass to pass what it computed of parameters, which then get none (Mega its kernels)."""
    try:
        at_first = float64_gradients(as_reference(copy_over(model)), inputs)
        used = as_reference(copy_over(model))
        float64_outputs(used, inputs)
        return len(float64_gradients(used, inputs)) < len(at_first)
    except AssertionError as error:
        return _WORDS in str(error)
    except Exception:  # whatever modelling code raises shows when the gradients are compared
        return False


def lost_gradients(
    model: torch.nn.Module, inputs: Mapping[str, Array], masked_by: Mapping[str, str], *, training: bool
) -> list[str]:
    """Why the gradients of a float32 model are no match for those in float64; empty where they are.

    A number next to a kink, as that of a ReLU, may fall on either side of it: then another gain is the better one.
    Other kernels round otherwise, and another processor has others; so they are asked for with oneDNN and without.
    """
    import torch

    from hardware.backends._torch import loss_gradients
    from hardware.model.tensors import to_tensors

    exact = as_reference(copy_over(model))
    try:
        given = to_tensors(inputs, "cpu", torch.float32)
        want = float64_gradients(exact, inputs, masked_by, training=training)
        error = 0.0
        for with_onednn in (True, False):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="TF32 acceleration")  # flags() sets what nobody has
                with torch.backends.mkldnn.flags(enabled=with_onednn):
                    got = loss_gradients(copy.deepcopy(model), given, masked_by, training=training)
            error = max(error, compare_gradients(got, want).max_rel_error)
    except Exception as raised:  # whatever modelling code raises, it is the reason why nothing can be learnt
        return [f"there are no gradients: {type(raised).__name__}: {' '.join(str(raised).split())[:200]}"]
    return [] if error < NOISE / 2 else [f"gradients are off by {error:.1e}, must be below {NOISE / 2:.0e}"]
