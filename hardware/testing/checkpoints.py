"""Find checkpoints by the hash of their weights, and open each once a process, memory-mapped and shared by all
builds. Suites therefore contain no paths, and never run on other weights than their own. `hwcompat run` and
`hwcompat report --model` use the same function, so that both refuse the same checkpoints with the same reasons."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..cell import Cell
from ..checkpoint_config import hash_of_config, read_config, settings_of
from ..errors import BrokenInput, ModelMissing, ModelRefused, echo
from ..safe_read import check_not_sparse, is_folder, is_plain_file, opened, read_bytes, read_json, reason_of
from .sentence_modules import module_files, with_modules
from .widened_weights import copy_over

if TYPE_CHECKING:
    import torch

CHECKPOINTS_VARIABLE = "HWCOMPAT_CHECKPOINTS"
"""Folders of checkpoints, separated as in PATH."""

_INDEX = "model.safetensors.index.json"
_BLOCK = 1 << 20
_LARGEST_INDEX = 64 * _BLOCK

Stamp = tuple[tuple[str, int, int, int, int, int], ...]


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder, sorted by name, the index of shards and the files of modules of
    sentence-transformers if there are any.

    Raises `ModelRefused` if one isn't a regular file, or if the index names a file that is missing or outside the
    folder.
    """
    files = sorted(folder.glob("*.safetensors"))
    if strange := [path.name for path in files if not is_plain_file(path)]:
        raise ModelRefused(
            f"the checkpoint {echo(str(folder))} cannot be read",
            why=f"{echo(strange[0])} is not a regular file, or a broken link",
            fix="Download the whole checkpoint.",
        )
    index = folder / _INDEX
    modules = module_files(folder)
    if not is_plain_file(index):
        return [*files, *modules]
    try:
        named = set(read_json(index, longest=_LARGEST_INDEX)["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelRefused(
            f"the checkpoint {echo(str(folder))} cannot be read",
            why=f"{_INDEX} is corrupt: {type(error).__name__}",
            fix="Download it again.",
        ) from error
    if missing := sorted(str(name) for name in named - {path.name for path in files}):
        raise ModelRefused(
            f"the checkpoint {echo(str(folder))} is incomplete",
            why=f"{len(missing)} file(s) in {_INDEX} are missing, the first is {echo(missing[0])}",
            fix="Download the whole checkpoint: hf download NAME --local-dir FOLDER resumes a partial download.",
        )
    return [*files, index, *modules]


def weights_hash(folder: Path) -> str:
    """Return the SHA-256 over the bytes of a folder's `weight_files`, one after the other.

    It is computed once a process as long as no file changes its size, time or place. Raises `BrokenInput`.
    """
    return _hash(_stamp(weight_files(folder)))


def _stamp(files: list[Path]) -> Stamp:
    """Return what distinguishes files from changed or replaced ones."""
    stats = [(path, path.stat()) for path in files]
    return tuple((str(p), s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for p, s in stats)


@functools.lru_cache(maxsize=16)
def _hash(stamp: Stamp) -> str:
    digest = hashlib.sha256()
    for name, *_ in stamp:
        try:
            with opened(Path(name)) as file:
                check_not_sparse(file)
                while block := file.read(_BLOCK):
                    digest.update(block)
        except OSError as error:
            raise BrokenInput(f"{echo(Path(name).name)} cannot be read", why=reason_of(error)) from error
    return digest.hexdigest()


def named_folders() -> list[Path]:
    """Return the folders that `HWCOMPAT_CHECKPOINTS` names, existing or not."""
    return [Path(text) for text in os.environ.get(CHECKPOINTS_VARIABLE, "").split(os.pathsep) if text]


def places_of(suite: str, folder: str) -> list[Path]:
    """Return the folders in which a suite looks for weights: those in `HWCOMPAT_CHECKPOINTS`, and then `folder`,
    relative to the suite's file."""
    return [*named_folders(), *([Path(suite).parent / folder] if folder else [])]


def checkpoint_folder(
    cell: str, revision: str, *, config: str = "", suite: str = "", folder: str = "", hub_id: str = ""
) -> Path:
    """Return the folder whose weights have the hash `revision`: one of `places_of`, or the snapshot of `hub_id` in
    the local Hub cache. If `config` is given, config.json has that hash, since it changes what the weights compute.

    Raises `ModelMissing` if there is none.
    """
    named = [*places_of(suite, folder), *([cached] if (cached := _cached(hub_id)) else [])]
    unusable = another = ""
    for place in named:
        try:
            if is_folder(place) and weights_hash(place) == revision:
                if config in ("", hash_of_config(read_config(place) or {})):
                    return place
                another = f"{echo(place.name)} has these weights with a different config.json"
        except BrokenInput as error:  # another folder may have them
            unusable = f"; {error.what}: {error.why}"
    looked = f"{len(named)} folder(s) have other weights or none" if named else "no folder was given"
    raise ModelMissing(
        f"the checkpoint {echo(Cell.parse(cell).model)} wasn't found",
        why=another or looked + unusable,
        fix=f"Set {CHECKPOINTS_VARIABLE} to its folder, or generate the suite again if its files changed.",
    )


def _cached(hub_id: str) -> Path | None:
    """Return the snapshot of a Hub id in the local cache, without network access."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(hub_id, "config.json") if hub_id else None
    return Path(found).parent if isinstance(found, str) else None


class _Opened:
    """A checkpoint's model, kept to make copies over its weights; `writes` counts all writes into them."""

    def __init__(self, model: torch.nn.Module, remarks: tuple[str, ...]) -> None:
        self.model = model
        self.remarks = remarks
        self.at_first = self.writes()

    def writes(self) -> int:
        return sum(parameter._version for parameter in self.model.parameters())


_opened: dict[tuple[Any, str, Stamp], _Opened] = {}
_revisions: WeakKeyDictionary[Any, tuple[_Opened, str]] = WeakKeyDictionary()


def load_checkpoint(model_class: type[Any], folder: Path) -> Any:
    """Return the model of transformers' `model_class` with all weights in float32, on the CPU, in evaluation mode.
    In a folder of sentence-transformers it has the modules of modules.json, and returns `sentence_embedding` too.

    Weights stored in float32 are memory-mapped and not copied; a second build shares the memory of the first unless
    it was written to. Nothing is downloaded, and no remote code runs. Raises `ModelRefused` if the files can't be
    used, lack weights, or don't fit config.json.
    """
    return open_model(model_class, folder)[0]


def open_model(model_class: type[Any], folder: Path, *, empty: bool = False) -> tuple[Any, tuple[str, ...]]:
    """Return the model of `load_checkpoint` and remarks about the files: see `open_files`.

    With `empty`, weights have names and shapes and no values. Raise as `load_checkpoint`.
    """
    if empty:
        return open_files(model_class, folder, weight_files(folder), empty=True)
    stamp = _stamp([*weight_files(folder), *sorted(folder.glob("*config.json"))])
    key = (model_class, str(folder), stamp)
    found = _opened.get(key)
    if found is None or found.writes() != found.at_first:
        _opened.clear()  # one checkpoint at a time: free the last one's memory
        found = _opened[key] = _Opened(*open_files(model_class, folder, weight_files(folder)))
    model = copy_over(found.model)
    _revisions[model] = (found, weights_hash(folder))
    return model, found.remarks


def revision_of(model: torch.nn.Module) -> str:
    """Return the hash of the files with a model's weights, or an empty text if they come from elsewhere or were
    written to."""
    found, revision = _revisions.get(model, (None, ""))
    return revision if found is not None and found.writes() == found.at_first else ""


# Opening the files as a model of transformers

_PACKED = (
    ".qweight",
    ".qzeros",
    ".weight_packed",
    ".weight_scale",
    ".weight_scale_inv",
    ".absmax",
    ".SCB",
    "_blocks",
)
"""Suffixes of the names of quantized weights."""
_ELSEWHERE = re.compile(r"(paged\|)?(flash_attention_\d|flex_attention)")
"""Implementations of attention that the reference on the CPU doesn't have."""
_EXPERTS = re.compile(r"(moe_)?num_(local_)?experts|n_routed_experts")
_CHOSEN_EXPERTS = re.compile(r"num_experts_per_tok(en)?|num_selected_experts|moe_(top_?)?k|top_k_experts")
"""Names of the number of experts, and of how many of them each token gets."""
_LFS = b"version https://git-lfs"
_LONGEST_CONFIG = 10 * 2**20
_SHOWN = 3
_SHORTEST_NAME = 3
"""Names of settings up to this length may appear in any sentence."""


def open_files(
    model_class: type[Any], folder: Path, files: Sequence[Path], *, empty: bool = False
) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """Return the model of `model_class` in float32 on the CPU, and remarks: unused weights, or a replaced attention.

    With `empty`, weights have names and shapes, and no values are read. Raises `ModelRefused`.
    """
    import torch

    where = echo(str(folder))
    _refuse_pointers(where, files)
    config, remarks = _configuration(model_class, folder)
    try:
        model, info = model_class.from_pretrained(
            str(folder),
            config=config,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **(_without_numbers() if empty else {"dtype": torch.float32}),
            ignore_mismatched_sizes=True,  # refused below, with names and sizes
        )
    except Exception as error:  # loaders raise classes of their own
        raise _not_loaded(model_class, folder, config, error) from error
    if others := sorted(info["mismatched_keys"]):
        raise _not_fitting(where, config, others)
    added = with_modules(model, folder)
    unneeded = "pooler." if added else ()
    if missing := sorted(name for name in map(str, info["missing_keys"]) if not name.startswith(unneeded)):
        packed = any(str(name).endswith(_PACKED) for name in info["unexpected_keys"])
        raise ModelRefused(
            f"the checkpoint {where} is incomplete",
            why=f"{len(missing)} weights of {model_class.__name__} are missing, the first is {echo(missing[0])}"
            + ("; other weights have names of quantized weights" if packed else ""),
            fix="Test the checkpoint before quantization."
            if packed
            else "Download config.json and all weights again, from one revision.",
            error_type="unsupported_format" if packed else "corrupt_checkpoint",
        )
    loaded: torch.nn.Module = model.eval()
    return loaded, (*remarks, *_unused(model_class, info["unexpected_keys"]), *filter(None, [added]))


def _without_numbers() -> dict[str, Any]:
    """Return the arguments for reading only names and shapes; without accelerate, the files are memory-mapped as they
    are."""
    from transformers.utils import is_accelerate_available

    return {"device_map": "meta"} if is_accelerate_available() else {"dtype": "auto"}


def _configuration(model_class: type[Any], folder: Path) -> tuple[Any, list[str]]:
    """Return the configuration in config.json, and remarks. Raises `ModelRefused`."""
    try:
        config = model_class.config_class.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # a constructor may raise any class
        raise _config_invalid(model_class, folder, error) from error
    _refuse_experts(folder, config.to_dict())
    own = ["auto_map in config.json names the folder's own code, which isn't run: the library's class is tested"]
    remarks = own if getattr(config, "auto_map", None) else []
    asked = sorted(set(filter(None, _attention_of(config))))
    if not any(_ELSEWHERE.fullmatch(one) for one in asked):
        return config, remarks
    config._attn_implementation = None  # of its parts too; the library then chooses
    setting = f"config.json sets attn_implementation to {', '.join(map(echo, asked))}"
    what = f"{setting}, which the CPU reference doesn't support; the library's default is tested instead"
    return config, [*remarks, what]


def _refuse_experts(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise `ModelRefused` if a part of a configuration chooses more experts for a token than it has."""
    counts = {str(name): value for name, value in config.items() if type(value) is int}
    chosen = {name: value for name, value in counts.items() if _CHOSEN_EXPERTS.fullmatch(name)}
    experts = {name: value for name, value in counts.items() if _EXPERTS.fullmatch(name)}
    for name, value in chosen.items():
        if 0 < max(experts.values(), default=0) < value:
            most = " and ".join(f"{other} {count}" for other, count in experts.items())
            raise ModelRefused(
                f"config.json in {echo(str(folder))} makes no model",
                why=f"{name} {value} is more than {most}: a token can't have more experts than there are",
                fix=f"Correct {name}, or download config.json again.",
                error_type="config_invalid",
            )
    for part in config.values():
        if isinstance(part, Mapping):
            _refuse_experts(folder, part)


def _attention_of(config: Any) -> Iterator[str]:
    yield getattr(config, "_attn_implementation", None) or ""
    for name in getattr(config, "sub_configs", {}):
        if (part := getattr(config, name, None)) is not None:
            yield from _attention_of(part)


def _refuse_pointers(where: str, files: Sequence[Path]) -> None:
    for path in files:
        if path.stat().st_size < 1024 and read_bytes(path, longest=1024).startswith(_LFS):
            raise ModelRefused(
                f"the checkpoint {where} has no weights",
                why=f"{echo(path.name)} is a Git LFS pointer, not the file itself",
                fix="Download the files: git lfs pull",
            )


def _not_loaded(model_class: type[Any], folder: Path, config: Any, error: Exception) -> ModelRefused:
    import torch

    try:
        with torch.device("meta"):
            model_class(config)
    except Exception as own:  # the configuration alone fails, not the weights
        return _config_invalid(model_class, folder, own)
    return ModelRefused(
        f"the checkpoint {echo(str(folder))} cannot be loaded as {model_class.__name__}",
        why=_message(error),
        fix="Download it again.",
    )


def _config_invalid(model_class: type[Any], folder: Path, error: Exception) -> ModelRefused:
    field = _field_of(error, read_json(folder / "config.json", longest=_LONGEST_CONFIG, finite=False))
    return ModelRefused(
        f"{model_class.__name__} can't be built from config.json in {echo(str(folder))}",
        why=f"{field}: {_message(error)}" if field else _message(error),
        fix=f"Correct {field or 'it'}, or download it again.",
        error_type="config_invalid",
    )


def _field_of(error: Exception, config: Mapping[str, Any]) -> str:
    """Return the setting that caused an error: the one for rotary positions if their code raised it, or one in its
    text."""
    settings = list(settings_of(config))
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith("modeling_rope_utils.py"):
            found = (name for name, value in settings if name.startswith("rope_") and isinstance(value, Mapping))
            return next(found, "rope_parameters")
        trace = trace.tb_next
    text = str(error)
    for name in sorted({name for name, _ in settings}, key=len, reverse=True):
        if len(name) > _SHORTEST_NAME and re.search(rf"\b{re.escape(name)}\b", text):
            return name
    return next((name for name, value in settings if isinstance(value, str) and error.args == (value,)), "")


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _not_fitting(where: str, config: Any, others: Sequence[tuple[str, Sequence[int], Sequence[int]]]) -> ModelRefused:
    """Return the error for weights with other sizes than the configuration's."""
    name, kept, made = others[0]
    sizes = [size for one, size in zip(kept, made, strict=False) if one != size]
    fields = [f"{field} {value}" for field, value in settings_of(config.to_dict()) if value in sizes and value != 1]
    because = f" ({', '.join(dict.fromkeys(fields))})" if fields else ""
    return ModelRefused(
        f"the weights of the checkpoint {where} don't match its config.json",
        why=f"{len(others)} weights have other sizes, the first is {echo(name)}: {tuple(kept)} in the file, "
        f"{tuple(made)} by config.json{because}",
        fix="Download both from one revision, or save the model again.",
        error_type="config_invalid",
    )


def _unused(model_class: type[Any], names: Sequence[str]) -> Iterator[str]:
    if found := sorted(map(str, names)):
        more = ", …" if len(found) > _SHOWN else ""
        yield (
            f"{len(found)} weight(s) of the checkpoint aren't used by {model_class.__name__}, and aren't tested: "
            f"{', '.join(found[:_SHOWN])}{more}"
        )
