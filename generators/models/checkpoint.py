"""Read a checkpoint's folder: config.json and safetensors, nothing that could run code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwcompat.hardware.checkpoint_config import hash_of_config, read_config, refuse_foreign, refuse_quantized
from hwcompat.hardware.errors import BrokenInput, ModelError, echo
from hwcompat.hardware.safe_read import is_plain_file, read_json
from hwcompat.hardware.testing.checkpoints import weight_files, weights_hash

from .folder_kinds import refuse_other_kind

_LONGEST_TOKENIZER = 128 * 2**20


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A folder with a readable config.json; `weights` are its safetensors files, possibly none."""

    folder: Path
    config: Mapping[str, Any]
    model_type: str
    architectures: tuple[str, ...]
    weights: tuple[Path, ...]

    @property
    def weights_hash(self) -> str:
        """Return the SHA-256 over the bytes of the weights; see `hardware.testing.checkpoints.weights_hash`."""
        return weights_hash(self.folder)

    @property
    def config_hash(self) -> str:
        """Return the SHA-256 over the content of config.json, independent of its order."""
        return hash_of_config(self.config)


def read_checkpoint(folder: Path, *, needs_weights: bool = False) -> Checkpoint:
    """Read config.json and list the files of a folder; open no weights.

    Raises `BrokenInput` if there is no readable config.json, if all weights are of another format, if loading would
    fetch code or weights from elsewhere, or, with `needs_weights`, if weights are missing or quantized. Raises
    `ModelError` if the configuration names no model type.
    """
    shown = echo(str(folder))
    config = read_config(folder)
    refuse_foreign(folder, config or {})
    if config is None:
        refuse_other_kind(folder)
        raise BrokenInput(
            f"{shown} isn't a checkpoint",
            why="it has no config.json",
            fix="Name a folder with config.json, or a model type.",
        )
    weights = tuple(sorted(folder.glob("*.safetensors")))
    if not weights:
        refuse_other_kind(folder, config, weights=True)
    if needs_weights and not weights:
        raise BrokenInput(
            f"the checkpoint {shown} has no weights",
            why="it has no .safetensors file",
            fix="Fetch the whole checkpoint, or test its model type instead.",
        )
    if needs_weights:
        weight_files(folder)  # raises where shards are missing
        refuse_quantized(folder, config)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        refuse_other_kind(folder, config)
        raise ModelError(
            f"the model type of {shown} is unknown",
            why="its config.json has no model_type",
            fix="Name the model type instead, for example: bert.",
        )
    named = config.get("architectures")
    architectures = tuple(n for n in named if isinstance(n, str)) if isinstance(named, list) else ()
    return Checkpoint(
        folder=folder, config=config, model_type=model_type, architectures=architectures, weights=weights
    )


def largest_token(folder: Path) -> int:
    """Return the largest token id of the tokenizer in a folder; -1 if there is none that can be read."""
    return max(_token_ids(folder), default=-1)


def _token_ids(folder: Path) -> Iterator[int]:
    """Yield the token ids of the files that transformers saves tokenizers in; skip files that can't be read."""
    for name, keys in (
        ("tokenizer.json", ("added_tokens", "model")),
        ("tokenizer_config.json", ("added_tokens_decoder",)),
        ("added_tokens.json", ()),
        ("vocab.json", ()),
    ):
        if not is_plain_file(folder / name):
            continue
        try:
            content = read_json(folder / name, longest=_LONGEST_TOKENIZER)
            yield from _ids_in({key: content[key] for key in keys if key in content} if keys else {"vocab": content})
        except (OSError, ValueError, TypeError):
            continue


def _ids_in(content: Mapping[str, Any]) -> Iterator[int]:
    vocabulary = content.get("model", content).get("vocab", {})
    if isinstance(vocabulary, Mapping):
        yield from (one for one in vocabulary.values() if type(one) is int)
    elif isinstance(vocabulary, list):  # Unigram: tokens with their scores, ordered by id
        yield len(vocabulary) - 1
    yield from (one["id"] for one in content.get("added_tokens", ()) if type(one.get("id")) is int)
    yield from (int(key) for key in content.get("added_tokens_decoder", {}) if str(key).isdigit())
