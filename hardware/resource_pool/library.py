"""Loads models and tokenizers with transformers from a local folder or the cache: nothing is fetched, no code of a
checkpoint runs, weights are safetensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import BrokenInput, HwCompatError, ModelError, UsageError, echo
from ..out_of_memory import is_out_of_memory
from ..plain_text import one_line
from ..testing.checkpoints import weight_files
from ..untrusted import is_folder, is_plain_file, read_json, reason_of

_LARGEST_CONFIG = 10 * 2**20
_LONGEST_REASON = 300
_IMPLEMENTATIONS = frozenset({"attn_implementation", "experts_implementation"})


def weights_bytes(model_name: str) -> int | None:
    """What the weights of a local folder take as files; `None` for what isn't one."""
    if not is_folder(Path(model_name)):
        return None
    return sum(os.stat(path).st_size for path in weight_files(Path(model_name)) if path.suffix == ".safetensors")


def model_loader(model_type: str, model_name: str) -> Callable[[], Any]:
    """What loads the model of a folder or of a cached name, in the dtype of its files and in evaluation mode.

    Its class is the one that its configuration names, else that of `AutoModel`. `model_type` is held against the
    configuration where it is a type of transformers.
    """

    def load() -> Any:
        transformers = _transformers()
        config = _read(transformers.AutoConfig, model_name, "configuration")
        types = transformers.CONFIG_MAPPING
        if model_type in types and config.model_type != model_type:
            raise ModelError(
                f"{echo(model_name)} is a {echo(str(config.model_type))}, not a {echo(model_type)}",
                fix="Ask for it by its own type.",
            )
        named = [getattr(transformers, str(name), None) for name in (getattr(config, "architectures", None) or ())]
        known = [one for one in named if isinstance(one, type) and issubclass(one, transformers.PreTrainedModel)]
        model, info = _read(
            known[0] if known else transformers.AutoModel,
            model_name,
            "model",
            use_safetensors=True,
            dtype="auto",
            output_loading_info=True,
        )
        if missing := sorted(map(str, info["missing_keys"])):
            raise BrokenInput(
                f"the checkpoint {echo(model_name)} is not complete",
                why=f"{len(missing)} weights of {type(model).__name__} are missing, the first is {echo(missing[0])}",
                fix="Fetch the whole checkpoint.",
            )
        return model.eval()

    return load


def tokenizer_loader(model_name: str) -> Callable[[], Any]:
    """What loads the tokenizer of a folder or of a cached name."""

    def load() -> Any:
        return _read(_transformers().AutoTokenizer, model_name, "tokenizer")

    return load


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            "the resource pool can't load this by itself",
            why="transformers isn't installed",
            fix="pip install -r requirements.txt, or give a constructor.",
        ) from error
    return transformers


def _read(loader: Any, model_name: str, what: str, **options: Any) -> Any:
    folder = Path(model_name)
    local = is_folder(folder)
    if local:
        _check(folder)
    try:
        return loader.from_pretrained(
            str(folder.absolute()) if local else model_name,
            local_files_only=True,
            trust_remote_code=False,
            **options,
        )
    except Exception as error:  # loaders raise their own classes; each means that the files can't be used
        if isinstance(error, HwCompatError) or is_out_of_memory(error):
            raise
        reason = one_line(f"{type(error).__name__}: {error}", longest=_LONGEST_REASON)
        fix = "Fetch it again." if local else f"Fetch it first: `hf download {model_name}`, or name a local folder."
        raise ModelError(f"the {what} {echo(model_name)} can't be loaded", why=reason, fix=fix) from error


def _check(folder: Path) -> None:
    """Refuse what would be loaded from elsewhere. Raises `BrokenInput`."""
    weight_files(folder)
    if is_plain_file(folder / "adapter_config.json"):
        raise BrokenInput(
            f"the checkpoint {echo(str(folder))} can't be loaded",
            why="it is an adapter: adapter_config.json names another model, and that one would be loaded",
            fix="Merge the adapter into its model, and save that.",
        )
    config = folder / "config.json"
    if not is_plain_file(config):
        return  # a tokenizer needs none; a model's loader says that it is missing
    try:
        told = read_json(config, longest=_LARGEST_CONFIG, finite=False)  # transformers writes Infinity
    except (OSError, ValueError) as error:
        raise BrokenInput(
            f"the checkpoint {echo(str(folder))} can't be read",
            why=f"config.json: {reason_of(error)}",
            fix="Fetch it again.",
        ) from error
    for name, value in _settings(told):
        if name.strip("_").removesuffix("_internal") in _IMPLEMENTATIONS and "/" in str(value):
            raise BrokenInput(
                f"the checkpoint {echo(str(folder))} is refused",
                why=f"its config.json sets {name} to {echo(str(value))}, which is code that somebody else keeps",
                fix=f"Take {name} out of config.json.",
            )


def _settings(config: Any) -> Iterator[tuple[str, Any]]:
    """All names with their values in a configuration and those inside it."""
    if isinstance(config, Mapping):
        for name, value in config.items():
            yield str(name), value
            yield from _settings(value)
    elif isinstance(config, list):
        for value in config:
            yield from _settings(value)
