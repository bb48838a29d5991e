"""What the head of a task wants of a configuration, beside what the type's own tiny one says."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from generators.models.catalog import TaskClass
from generators.models.classifier import Classification

from .overrides import overrides
from .scopes import text_config
from .specs import first_special
from .tiny import LABELS


def head_arguments(
    config: Mapping[str, Any], config_class: Any, chosen: TaskClass, what: Classification
) -> dict[str, Any]:
    """The constructor arguments that tasks.toml asks for, as changes to `config`. `config_class` None: of diffusers,
    whose classes take none."""
    changed: dict[str, Any] = {}
    if chosen.entry.labels:
        own = overrides(what.model_type, chosen.task).get("config", {})
        changed["num_labels"] = own.get("num_labels", LABELS)
    if config_class is None:
        return changed
    changed |= copy.deepcopy(dict(chosen.entry.config))
    if decodes_beside_its_primary_task(what, chosen, config_class):
        changed["is_decoder"] = True
    if chosen.entry.reads_end:
        changed |= _padding_token(config_class(**copy.deepcopy(dict(config))))
    return changed


def decodes_beside_its_primary_task(what: Classification, chosen: TaskClass, config_class: Any) -> bool:
    """Whether an encoder stands in as a decoder, as BERT may: its configuration has to say so, else it looks ahead
    and keeps no cache."""
    if what.architecture != "encoder-only" or chosen.entry.generate != "causal":
        return False
    return "is_decoder" in inspect.signature(config_class.__init__).parameters


def _padding_token(made: Any) -> dict[str, int]:
    """A padding token that no text holds, where a configuration with a vocabulary has none."""
    if text_config(made) is not made or getattr(made, "pad_token_id", None) is not None:
        return {}
    return {"pad_token_id": first_special(made) - 1} if getattr(made, "vocab_size", None) else {}
