"""The exporter of optimum-intel, which knows about 180 model types and keeps a decoder's cache inside the graph."""

from __future__ import annotations

import copy
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from packaging.version import Version

from ..model.model_types import ModelInput
from .exported import Exported

if TYPE_CHECKING:
    import torch

    from ..model.model_types import Inputs

_METHOD = "optimum-intel"
_LIMIT = "MAX_TRANSFORMERS_VERSION"


def with_exporter(subject: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Export with optimum-intel. Raises the exporter's own errors."""
    _export(subject, folder)
    return Exported(folder=folder, method=_METHOD, decodes=subject.generates != "none")


def beyond_limit(subject: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Export a type whose exporter states a newest transformers and refuses this newer one.

    The limit is only stated; whether the export is right is measured afterwards.
    """
    with mock.patch.object(_exporter_class(subject), _LIMIT, None):
        _export(subject, folder)
    limit = f"transformers {limit_of(subject)}"
    return Exported(folder=folder, method=_METHOD, exporter_limit=limit, decodes=subject.generates != "none")


def limit_of(subject: ModelInput) -> str:
    """Return the newest transformers that the exporter allows for this type, if this one is newer; else empty."""
    try:
        import transformers

        limit = getattr(_exporter_class(subject), _LIMIT, None)
    except ImportError:  # there is no exporter, as the first way has reported
        return ""
    return str(limit) if limit is not None and Version(transformers.__version__) > Version(str(limit)) else ""


def _export(subject: ModelInput, folder: Path) -> None:
    from optimum.exporters.openvino import export_from_model

    model = _copy_of(subject.model)
    config: Any = model.config
    config.architectures = [type(model).__name__]  # save_pretrained would write it; loading needs it
    if not hasattr(config, "pad_token_id"):  # in a checkpoint's own file, and read by the exporter
        config.pad_token_id = getattr(config.get_text_config(), "pad_token_id", None)
    export_from_model(model, folder, task=exporter_task(subject))


def _copy_of(model: torch.nn.Module) -> Any:
    """Return a copy of the module with the very same weights, so that a failing exporter changes nothing."""
    weights = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in weights})


def exporter_task(subject: ModelInput) -> str:
    """Return the exporter's name of a model's task, with a cache if possible: the first name that it knows."""
    known = set(_supported(subject))
    names = (subject.task, *openvino_names()["exporter_tasks"].get(subject.task, ()))
    wanted = [f"{name}-with-past" for name in names] if subject.generates != "none" else []
    return next((name for name in (*wanted, *names) if name in known), subject.task)


@functools.cache
def openvino_names() -> Mapping[str, Any]:
    """Return the content of openvino.toml."""
    with Path(__file__).with_name("openvino.toml").open("rb") as file:
        return tomllib.load(file)


def _supported(subject: ModelInput) -> Mapping[str, Any]:
    """Return the exporter's configurations for this model type, by task; empty for an unknown type."""
    import optimum.exporters.openvino  # noqa: F401 - registers the configurations
    from optimum.exporters.tasks import TasksManager

    model_type: Any = getattr(getattr(subject.model, "config", None), "model_type", "")
    try:
        return dict(
            TasksManager.get_supported_tasks_for_model_type(model_type, "openvino", library_name="transformers")
        )
    except KeyError:
        return {}


def _exporter_class(subject: ModelInput) -> Any:
    found = _supported(subject).get(exporter_task(subject))
    return getattr(found, "func", found)
