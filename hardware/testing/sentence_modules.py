"""Models of sentence-transformers: the modules that `modules.json` lists make one embedding of a text from the states
of a transformer. Users see only the embedding. The package itself isn't needed."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ModelRefused, echo
from ..safe_read import is_plain_file, read_json

if TYPE_CHECKING:
    import torch

EMBEDDING = "sentence_embedding"
LIST = "modules.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_LARGEST_JSON = 2**20
_POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""Poolings, in the order in which the results of several are joined."""
_OLD = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens", "weightedmean": "weightedmean_tokens"}
"""How settings of older versions name them, after `pooling_mode_`."""


@dataclass(frozen=True, kw_only=True)
class SentenceModule:
    """A module after the transformer: its class, its folder, and the settings in the folder's config.json."""

    kind: str
    folder: Path
    settings: Mapping[str, Any]

    @property
    def weights(self) -> Path | None:
        """The file of weights that is read, if there is one."""
        return next((self.folder / name for name in _WEIGHTS if is_plain_file(self.folder / name)), None)

    @property
    def poolings(self) -> tuple[str, ...]:
        """The poolings of a Pooling."""
        named = self.settings.get("pooling_mode")
        old = [one for one in _POOLINGS if self.settings.get(f"pooling_mode_{_OLD.get(one, one)}")]
        return (named,) if isinstance(named, str) else tuple(named or old or ["mean"])

    def __str__(self) -> str:
        sizes = [str(self.settings[name]) for name in ("in_features", "out_features") if name in self.settings]
        activation = str(self.settings.get("activation_function", "Tanh")).rpartition(".")[2]
        facts = [*self.poolings] if self.kind == "Pooling" else [" to ".join(sizes), activation] if sizes else []
        return f"{self.kind} ({', '.join(facts)})" if facts else self.kind


def sentence_modules(folder: Path) -> tuple[SentenceModule, ...]:
    """Return the modules after the transformer; none for a folder that isn't of sentence-transformers.

    Raises `ModelRefused` if modules.json or a module's settings can't be read, if the transformer isn't first, or if
    they don't make an embedding.
    """
    if not is_plain_file(folder / LIST):
        return ()
    found = []
    try:
        for one in read_json(folder / LIST, longest=_LARGEST_JSON):
            place = folder / str(one["path"])
            if not place.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{one['path']!r} is outside the folder")
            config = place / "config.json"
            settings = read_json(config, longest=_LARGEST_JSON) if is_plain_file(config) else {}
            found.append(SentenceModule(kind=str(one["type"]).rpartition(".")[2], folder=place, settings=settings))
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{LIST} or the config.json of a module can't be read: {type(error).__name__}: {error}"
        raise _refused(folder, why, fix="Download it again.", error_type="corrupt_checkpoint") from error
    kinds = [one.kind for one in found]
    if kinds == ["Transformer"]:
        return ()
    if kinds[:1] != ["Transformer"] or kinds.count("Pooling") != 1 or found[0].folder.resolve() != folder.resolve():
        raise _refused(
            folder, f"{LIST} lists {', '.join(kinds)}, not a Transformer in the folder itself and a Pooling"
        )
    return tuple(found[1:])


def module_files(folder: Path) -> list[Path]:
    """Return the files that decide what the modules of a folder compute. Raise as `sentence_modules` does."""
    modules = sentence_modules(folder)
    named = [path for one in modules for path in (one.folder / "config.json", one.weights)]
    return [folder / LIST, *(path for path in named if path and is_plain_file(path))] if modules else []


def with_modules(model: torch.nn.Module, folder: Path) -> str:
    """Add the modules of a folder to its transformer and return a remark that lists them. Without any, change nothing
    and return an empty text.

    The class becomes a subclass of the same name that returns the embedding too. A pooler is removed, because no
    embedding uses it. Raises `ModelRefused` for an unknown module, or if its weights don't fit its settings.
    """
    listed = sentence_modules(folder)
    if not listed:
        return ""
    made = _made(folder, listed)
    for one, module in zip(listed, made.values(), strict=True):
        _load(folder, one, module)
    model.__class__ = _with_embedding(type(model), lambda: _made(folder, listed))
    _add(model, made)
    return f"the modules of {LIST} are applied: {', '.join(map(str, listed))}; the embeddings of texts are compared"


def _refused(folder: Path, why: str, *, fix: str = "", error_type: str = "unsupported_format") -> ModelRefused:
    own = "Test it as your own code: --model package.module:factory, where factory returns a torch module."
    what = f"the folder {echo(str(folder))} of sentence-transformers can't be run"
    return ModelRefused(what, why=why, fix=fix or own, error_type=error_type)


def _add(model: Any, modules: torch.nn.ModuleDict) -> None:
    model.sentence_modules = modules
    if getattr(model, "pooler", None) is not None:
        model.pooler = None


def _with_embedding(model_class: Any, make: Any) -> Any:
    import torch

    class WithEmbedding(model_class):  # type: ignore[misc] # the base is known at run time only
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            _add(self, make())  # whoever saves and loads it gets them too

        @functools.wraps(model_class.forward)
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            states = output[0]
            mask = kwargs.get("attention_mask")
            mask = torch.ones(states.shape[:2], device=states.device) if mask is None else mask
            for module in self.sentence_modules.values():
                states = module(states, mask)
            if isinstance(output, tuple):
                return (*output, states)
            output[EMBEDDING] = states
            return output

    WithEmbedding.__name__ = WithEmbedding.__qualname__ = model_class.__name__
    return WithEmbedding


def _made(folder: Path, listed: Sequence[SentenceModule]) -> torch.nn.ModuleDict:
    """Return the modules by place and class, with new weights. Raises `ModelRefused` for one that isn't known."""
    import torch

    made = {}
    stage = "token_embeddings"
    for place, one in enumerate(listed, 1):
        stage = EMBEDDING if one.kind == "Pooling" else stage
        known = _classes().get(one.kind)
        if known is None:
            raise _refused(folder, f"{LIST} lists the module {echo(one.kind)}, which isn't known here")
        named = {one.settings.get(name) for name in ("module_input_name", "module_output_name")} - {None, stage}
        if named and one.kind != "Pooling":
            raise _refused(
                folder, f"its module {one.kind} reads or writes {echo(str(named.pop()))} instead of {stage}"
            )
        try:
            made[f"{place}_{one.kind}"] = known(one)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            why = f"the settings of its module {one.kind} are wrong: {type(error).__name__}: {error}"
            raise _refused(folder, why, fix="Download it again.", error_type="config_invalid") from error
    return torch.nn.ModuleDict(made).eval()


def _load(folder: Path, one: SentenceModule, module: torch.nn.Module) -> None:
    """Fill a module with its file of weights; a pickle is read as tensors alone. Raises `ModelRefused`."""
    import torch
    from safetensors.torch import load_file

    want = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    if not want:
        return
    how = {"fix": "Download the whole folder again.", "error_type": "corrupt_checkpoint"}
    if one.weights is None:
        raise _refused(folder, f"{one.folder.name} has no weights: {' or '.join(_WEIGHTS)}", **how)
    try:
        is_safe = one.weights.suffix == ".safetensors"
        read = load_file(one.weights) if is_safe else torch.load(one.weights, "cpu", weights_only=True)
        got = {name: tuple(value.shape) for name, value in read.items()}
    except Exception as error:  # both loaders raise classes of their own
        why = f"{one.folder.name}/{one.weights.name} can't be read: {type(error).__name__}: {str(error)[:200]}"
        raise _refused(folder, why, **how) from error
    if got != want:
        name = min(got.items() ^ want.items())[0]
        sizes = f"{got.get(name, 'missing')} in the file, {want.get(name, 'unknown')} by its config.json"
        why = f"the weight {name} of {one.folder.name} doesn't fit: {sizes}"
        raise _refused(folder, why, **how)
    module.load_state_dict(read)


@functools.cache
def _classes() -> Mapping[str, Any]:
    """Return the modules of sentence-transformers by name; names of weights and results are those of its own."""
    import torch

    class Pooling(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self, one: SentenceModule) -> None:
            super().__init__()
            self.poolings = one.poolings
            if unknown := set(one.poolings) - set(_POOLINGS):
                raise ValueError(f"the pooling {unknown.pop()!r} isn't known")

        def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.cat([_pooled(one, states, mask) for one in self.poolings], dim=-1)

    class Dense(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, one: SentenceModule) -> None:
            super().__init__()
            read, written = one.settings["in_features"], one.settings["out_features"]
            self.linear = torch.nn.Linear(read, written, bias=one.settings.get("bias", True))
            self.activation = _activation(one.settings.get("activation_function", "torch.nn.Tanh"))
            self.adds = bool(one.settings.get("use_residual"))
            if self.adds and read != written:
                self.residual = torch.nn.Linear(read, written, bias=False)

        def forward(self, states: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            found = self.activation(self.linear(states))
            return found + (self.residual(states) if hasattr(self, "residual") else states) if self.adds else found

    class Normalize(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, _: SentenceModule) -> None:
            super().__init__()

        def forward(self, states: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.normalize(states, p=2, dim=-1)

    class LayerNorm(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, one: SentenceModule) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(one.settings["dimension"])

        def forward(self, states: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            return self.norm(states)

    return {one.__name__: one for one in (Pooling, Dense, Normalize, LayerNorm)}


def _activation(name: str | None) -> Any:
    """Return a module of torch by the name that Dense stores. Raises `ValueError` for code of another package."""
    import torch

    found = getattr(torch.nn, str(name).rpartition(".")[2], None) if name else torch.nn.Identity
    if not str(name or "torch.").startswith("torch.") or not isinstance(found, type):
        raise ValueError(f"the activation {name!r} isn't a module of torch")
    return found()


def _pooled(kind: str, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return an embedding (batch, width) for each row of states (batch, length, width) and mask (batch, length)."""
    import torch

    counted = mask.to(states.dtype)[..., None]
    if kind == "max":
        return states.masked_fill(counted == 0, -torch.inf).max(dim=1).values
    if kind in ("cls", "lasttoken"):
        seen = mask.to(torch.int32).cumsum(1) * mask.to(torch.int32)
        place = (seen == 1 if kind == "cls" else seen == seen.amax(1, keepdim=True)).to(torch.float32).argmax(1)
        return states.gather(1, place[:, None, None].expand(-1, 1, states.shape[-1])).squeeze(1)
    wide = torch.promote_types(states.dtype, torch.float32)
    weights = counted.to(wide) * counted.to(wide).cumsum(1) if kind == "weightedmean" else counted.to(wide)
    total = weights.sum(1).clamp(min=1e-9)
    return ((states * weights).sum(1) / (total.sqrt() if "sqrt" in kind else total)).to(states.dtype)
