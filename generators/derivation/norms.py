"""Which weights of normalizations a model adds 1 to, asked once of the library's code when a recipe is derived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hardware.testing.loud_weights import without_numbers

if TYPE_CHECKING:
    import torch


def zero_centered_weights(model: torch.nn.Module) -> tuple[str, ...]:
    """Names of the weights of root mean square normalizations to which the code adds 1 (Gemma, Qwen3-Next).

    The number of a layer is written as `*` if all layers are alike. `model` is left as it is.
    """
    import torch

    with torch.no_grad():
        adding = {
            f"{name}.weight"
            for name, module in model.named_modules()
            if "RMSNorm" in type(module).__name__ and getattr(module, "weight", None) is not None
            if _passes_at_zero(module)
        }
    others = {
        without_numbers(name) for name, _ in model.named_parameters(remove_duplicate=False) if name not in adding
    }
    return tuple(sorted({name if (short := without_numbers(name)) in others else short for name in adding}))


def _passes_at_zero(norm: Any) -> bool:
    """Whether a normalization lets anything through where its weight is 0."""
    import torch

    kept = norm.weight.detach().clone()
    try:
        norm.weight.zero_()
        return bool(norm(torch.ones(1, *kept.shape, dtype=kept.dtype)).any())
    except Exception:  # it takes something besides, such as a gate: what it does without isn't known
        return False
    finally:
        norm.weight.copy_(kept)
