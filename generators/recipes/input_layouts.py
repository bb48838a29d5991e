"""Try layouts on the model: of sounds, of masks over images and sounds, and of placeholder tokens in a text.

A configuration states the bins of a frame, or the strides of convolutions, but neither the order of axes nor whether
the length is free, nor which axes a mask covers. The likely layouts are tried on the model: the first layout that
runs is used for a sound, and the first mask that changes the outputs for a mask. The number of placeholder tokens
comes from the model itself.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hwcompat.generators.models.inputs import make_inputs
from hwcompat.hardware.compare import compare
from hwcompat.hardware.errors import ModelError

from .config_scopes import attribute_of, roles
from .measurements import SUBTLE, run
from .modality_inputs import Spec

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_FRAMES_A_STEP = 8
"""Frames per position of a text: encoders merge two to eight frames into one."""


SOUNDS = ("input_features", "input_values")
SOUND_MASKS = ("input_features_mask", "feature_attention_mask")
"""Masks over the frames of `input_features`; no sound is padded here."""
_FRAMES_IN_TEXT = 64
"""Frames of a sound with placeholder tokens in a text, whose number can't follow the text's length."""
_MERGED = (1, 2, 4)
"""Frames that convolutions merge before attention reads a mask."""
_OF = {
    "image": ("pixel_values", "pixel_values_images", "image_patches"),
    "video": ("pixel_values_videos",),
    "audio": ("input_features", "input_values"),
}
"""The inputs of each modality."""
_TEXT_BEHIND = 3
"""Tokens after the placeholders: fewer than the shortest text of a suite has."""


def sound_layouts(name: str, model: Any, *, in_text: bool) -> list[Spec]:
    """Return the possible specifications of an input of this name, the likeliest first; empty if it isn't sound.

    `in_text` says whether the sound has placeholder tokens in the text, so that its length is fixed. Raises
    `ModelError` if the configuration leaves the shape open.
    """
    if name == "input_features":
        return _frames(model.config, in_text=in_text)
    if name == "input_values":
        return _values(model, in_text=in_text)
    return []


def chosen_layout(
    model: Any, name: str, specs: Mapping[str, Spec], layouts: list[Spec], run: Callable[[dict[str, Spec]], object]
) -> dict[str, Spec]:
    """Return `specs` with the first of `layouts` that `run` accepts, with masks over its frames only if none works
    without.

    If none works, return the first; the model's error is then the reason why it has no recipe.
    """
    masks = [one for one in specs if one in SOUND_MASKS]
    plain = {one: spec for one, spec in specs.items() if one not in masks}
    tried = [{**plain, name: layout} for layout in layouts]
    if masks:
        fixed = [_fixed(one[name]) for one in tried]
        tried += [{**specs, name: layout, **dict.fromkeys(masks, mask)} for layout, mask in fixed]
    for one in tried if len(tried) > 1 else ():
        try:
            run(one)
        except Exception as error:  # any error means that these aren't the model's axes
            log.debug("layout %s: %s", one[name], error)
            continue
        return one
    return tried[0]


def _fixed(layout: Spec) -> tuple[Spec, Spec]:
    """Return a sound of this layout whose length doesn't follow the text's, and a mask of its frames without
    padding."""
    if layout["kind"] == "frames":
        shape = [_FRAMES_IN_TEXT, layout["bins"]]
        layout = {"kind": "features", "shape": shape[::-1] if layout.get("bins_first") else shape}
    sizes = layout.get("shape", ())
    frames = [_FRAMES_IN_TEXT] if _FRAMES_IN_TEXT in sizes else list(sizes[1:])
    return layout, {"kind": "ones", "shape": frames}


def _frames(config: Any, *, in_text: bool) -> list[Spec]:
    names = roles()["config"]["mel_bins"]
    bins = attribute_of(config, *names)
    if bins is None:
        raise ModelError(
            f"the shape of the features of {config.model_type} is unknown",
            why=f"its configuration has none of {', '.join(names)}",
        )
    bins *= attribute_of(config, *roles()["config"]["stacked_frames"]) or 1
    free = {"kind": "frames", "bins": bins, "step": _FRAMES_A_STEP}
    layouts: list[Spec] = [free, {**free, "bins_first": True}]
    if in_text:
        shapes = ([_FRAMES_IN_TEXT, bins], [bins, _FRAMES_IN_TEXT])
        layouts = [{"kind": "features", "shape": shape} for shape in shapes]
    longest = attribute_of(config, "max_source_positions")
    return [*layouts, {"kind": "features", "shape": [bins, 2 * longest]}] if longest else layouts


def _values(model: Any, *, in_text: bool) -> list[Spec]:
    config = model.config
    bins, frames = attribute_of(config, *roles()["config"]["mel_bins"]), attribute_of(config, "max_length")
    kernels, strides = (attribute_of(config, name) for name in ("conv_kernel", "conv_stride"))
    if isinstance(kernels, list | tuple) and isinstance(strides, list | tuple):
        plain = _exact(kernels, strides)
    elif bins and frames:
        return [{"kind": "features", "shape": [frames, bins]}]
    else:
        plain = {"kind": "waveform", "step": attribute_of(config, "hop_length") or _step(model), "extra": 0}
    channels = attribute_of(config, "audio_channels") or 1
    if in_text:
        samples = _FRAMES_A_STEP * plain["step"] + plain["extra"]
        return [{"kind": "features", "shape": shape} for shape in ([samples], [channels, samples])]
    return [plain, {**plain, "channels": channels}]


def _exact(kernels: Any, strides: Any) -> Spec:
    """Return the samples of which a stack of convolutions makes exactly `length` frames."""
    reach, step = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        reach += (kernel - 1) * step
        step *= stride
    return {"kind": "waveform", "step": step, "extra": reach - step}


def _step(model: Any) -> int:
    """Return the samples per frame: the product of the convolutions' strides, without those of a decoder.

    Raises `ModelError` if no convolution has a stride above one.
    """
    import torch

    step: int = math.prod(module.stride[0] for module in model.modules() if isinstance(module, torch.nn.Conv1d))
    if step == 1:
        raise ModelError(
            f"the shape of the waveform of {model.config.model_type} is unknown",
            why="its configuration has no conv_kernel and conv_stride, and no convolution of the model has a stride",
        )
    return step


def with_sense_masks(
    model: torch.nn.Module, specs: Mapping[str, Spec], lengths: Sequence[int], unchanged: Collection[str]
) -> tuple[dict[str, Spec], tuple[str, ...]]:
    """Return `specs` with each mask over an image or a sound that changes the outputs of `model`, and the names of
    masks of an unknown form. Masks that it doesn't read are left out; those in `unchanged` stay."""
    found, unknown = dict(specs), []
    for name in inspect.signature(model.forward).parameters:
        if "mask" not in name or name in unchanged or name in roles()["masks_not_given"]:
            continue
        if name in specs and specs[name]["kind"] != "ones":
            continue
        if name not in roles()["masks"]:
            unknown.append(name)
            continue
        covered = [specs[one] for one in roles()["masks"][name] if one in specs]
        taken = False
        for spec in (spec for one in covered for spec in _layouts(one, model)):
            moved = _moved(model, {**found, name: spec}, name, lengths)
            taken |= moved is not None
            if moved is not None and moved >= SUBTLE:
                found[name] = spec
                break
        else:
            if covered and not taken:
                unknown.append(name)
    return found, tuple(unknown)


def _moved(model: torch.nn.Module, specs: Mapping[str, Spec], name: str, lengths: Sequence[int]) -> float | None:
    """Return how far padding by the mask `name` moves the outputs; None if the model doesn't accept it, or gives
    values that aren't finite."""
    padded = make_inputs(specs, 0, lengths)
    try:
        # Copies, because a codec caches results of its codes.
        plain = run(copy.deepcopy(model), {**padded, name: padded[name] | True})
        moved = compare(run(copy.deepcopy(model), padded), plain).max_rel_error
    except Exception:  # any error means that these aren't the mask's axes
        return None
    return moved if moved < math.inf else None


def _layouts(covered: Spec, model: torch.nn.Module) -> Iterator[Spec]:
    """Yield the possible specifications of a mask over an input, the likeliest first: whole numbers or booleans."""
    if covered["kind"] in ("waveform", "frames", "tokens"):
        step, extra = covered.get("step", 1), covered.get("extra", 0)
        for merged in (one for one in _MERGED if one == 1 or (step % one == 0 and not extra)):
            plain = {"kind": "heard", "step": step // merged, "extra": extra}
            yield from (plain, {**plain, "boolean": True})
    for shape in _shapes(covered, model):
        plain = {"kind": "shown", "shape": shape}
        yield from (plain, {**plain, "boolean": True})


def _shapes(covered: Spec, model: torch.nn.Module) -> Iterator[list[int]]:
    if covered["kind"] == "flattened":
        yield [covered["side"] ** 2]
    shape = covered.get("shape", [])
    if covered["kind"] not in ("pixels", "features") or not all(isinstance(size, int) for size in shape):
        return
    if len(shape) > 2:
        images, sides = shape[:-3], shape[-2:]
        yield [*images, *sides]
        patch = attribute_of(getattr(model, "config", None), *roles()["config"]["patch"])
        if isinstance(patch, int):
            rows, columns = (side // patch for side in sides)
            yield from ([*images, rows, columns], [*images, rows * columns], [*images, rows * columns + 1])
    else:
        yield from ([size] for size in shape)
        yield list(shape)


def placeholder_tokens(config: Any, given: Collection[str] | None = None) -> dict[str, int]:
    """Return the placeholder token of each modality; with `given`, of the modalities among those inputs."""
    if given is not None and "input_ids" not in given:
        return {}
    tokens = {
        modality: attribute_of(config, f"{modality}_token_id", f"{modality}_token_index")
        for modality, names in _OF.items()
        if given is None or set(names) & set(given)
    }
    return {modality: token for modality, token in tokens.items() if isinstance(token, int)}


def placeholder_positions(
    model: Any, tokens: Mapping[str, int], specs: Mapping[str, Spec], side: str
) -> list[list[Any]]:
    """Return the columns of the placeholders of each modality, as `[token, start, stop]`, in the number that the
    model needs.

    They follow one another in columns without padding. Raises `ModelError` if the model's number can't be found.
    """
    counts = {modality: _count_of(model, modality, token, specs) for modality, token in tokens.items()}
    start = -sum(counts.values()) - _TEXT_BEHIND if side == "left" else 1
    found = []
    for modality, count in counts.items():
        found.append([tokens[modality], start, start + count])
        start += count
    return [one for one in found if one[1] < one[2]]


class _Count(Exception):
    """Carries the answer out of a forward pass; not an error."""

    def __init__(self, count: int) -> None:
        self.count = count


def _count_of(model: Any, modality: str, token: int, specs: Mapping[str, Spec]) -> int:
    """Return the number of placeholder tokens of one example of a modality."""
    other = {name for known, names in _OF.items() if known != modality for name in names}
    drafts = {name: dict(spec) for name, spec in specs.items() if name not in other}
    drafts["input_ids"]["places"] = [[token, 1, 3]]  # two, since one may represent all (Qwen2-Audio)
    try:
        count = _by_forward(model, drafts)
    except Exception as error:  # modeling code may raise anything, also from an unknown check
        if counted := re.search(r"features:? (\d+)", str(error)):
            return int(counted[1])
        count = _by_features(model, modality, drafts)
        if count is None:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            what = f"the number of placeholder tokens of an {modality} in {type(model).__name__} is unknown"
            raise ModelError(what, why=why) from error
    else:
        count = _by_features(model, modality, drafts) if count is None else count
    return count or 0  # none, as in cross-attention


def _tensors(drafts: Mapping[str, Spec]) -> dict[str, Any]:
    """Return one example of each input."""
    import torch

    from hwcompat.hardware.model.calls import to_tensors

    return to_tensors(make_inputs(drafts, 0, (_TEXT_BEHIND,)), "cpu", torch.float32)


def _by_forward(model: Any, drafts: Mapping[str, Spec]) -> int | None:
    """Return the number of features that a forward pass puts into the embedded text, counted just before; None if
    that isn't observed."""
    import torch

    from hwcompat.hardware.model.calls import without_cache

    with torch.no_grad(), _stopped_at_places(model), _scatters():
        try:
            model(**_tensors(drafts), **without_cache(model))
        except _Count as wanted:
            return wanted.count
    return None


@contextlib.contextmanager
def _stopped_at_places(model: Any) -> Iterator[None]:
    """Let the library's check of placeholders against features raise the number of features instead."""
    modules = [module for module in model.modules() if hasattr(module, "get_placeholder_mask")]

    def stopping(check: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(check).bind(*args, **kwargs).arguments
            for name, features in given.items():
                if name.split("_")[-1] == "features" and features is not None:
                    raise _Count(features.numel() // given["inputs_embeds"].shape[-1])
            return check(*args, **kwargs)

        return counted

    for module in modules:
        module.get_placeholder_mask = stopping(module.get_placeholder_mask)
    try:
        yield
    finally:
        for module in modules:
            del module.get_placeholder_mask


def _scatters() -> Any:
    """Return a mode in which scattering features over the embedded text raises the number of places."""
    import torch
    from torch.overrides import TorchFunctionMode

    scatters = (torch.masked_scatter, torch.Tensor.masked_scatter)

    class Counting(TorchFunctionMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function in scatters and len(args) == 3:
                raise _Count(args[2].numel() // args[0].shape[-1])
            return function(*args, **(kwargs or {}))

    return Counting()


def _by_features(model: Any, modality: str, drafts: Mapping[str, Spec]) -> int | None:
    """Return the number of embeddings that the model makes of one example; None if it has no such method."""
    import torch

    name = f"get_{modality}_features"
    makers = [getattr(module, name) for module in model.modules() if hasattr(module, name)]
    takes = [inspect.signature(maker).parameters for maker in makers]
    # A head may pass on any argument; the model inside it has the signature.
    embed, taken = next((both for both in zip(makers, takes, strict=True) if {*both[1]} & {*drafts}), (None, ()))
    if embed is None:
        return None
    with torch.no_grad():
        features = embed(**{given: tensor for given, tensor in _tensors(drafts).items() if given in taken})
    found = getattr(features, "pooler_output", features)  # 4.x returns only the embeddings
    parts: list[Any] = list(found) if isinstance(found, list | tuple) else [found]
    return int(sum(math.prod(part.shape[:-1]) for part in parts))
