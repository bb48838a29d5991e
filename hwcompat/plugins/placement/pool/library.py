"""Loads models and tokenizers with transformers from a local folder or the cache: nothing is fetched, no code of a
checkpoint runs, weights are safetensors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hardware.checkpoint_config import read_config, refuse_foreign
from hardware.errors import BrokenInput, HwCompatError, ModelError, UsageError, echo
from hardware.out_of_memory import is_out_of_memory
from hardware.plain_text import one_line
from hardware.testing.checkpoints import weight_files
from hardware.untrusted import is_folder

_LONGEST_REASON = 300


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
        weight_files(folder)  # raises where one is no file of its own
        refuse_foreign(folder, read_config(folder) or {})  # a tokenizer needs none; a model's loader says so
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
