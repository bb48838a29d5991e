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

from ..model.model_types import ModelSubject
from .exported import Exported

if TYPE_CHECKING:
    import torch

    from ..model.model_types import Inputs

_METHOD = "optimum-intel"
_LIMIT = "MAX_TRANSFORMERS_VERSION"


def with_exporter(subject: ModelSubject, example: Inputs, folder: Path) -> Exported:
    """Export with optimum-intel as it is. Raises what the exporter raises."""
    _export(subject, folder)
    return Exported(folder=folder, method=_METHOD, decodes=subject.generates != "none")


def beyond_limit(subject: ModelSubject, example: Inputs, folder: Path) -> Exported:
    """The same for a type whose exporter states a newest transformers and refuses this newer one.

    That limit is a statement; whether the export is right is measured afterwards.
    """
    with mock.patch.object(_exporter_class(subject), _LIMIT, None):
        _export(subject, folder)
    limit = f"transformers {limit_of(subject)}"
    return Exported(folder=folder, method=_METHOD, exporter_limit=limit, decodes=subject.generates != "none")


def limit_of(subject: ModelSubject) -> str:
    """The newest transformers that the exporter states for this type, where this one is newer; else empty."""
    try:
        import transformers

        limit = getattr(_exporter_class(subject), _LIMIT, None)
    except ImportError:  # there is no exporter, as the first way has told already
        return ""
    return str(limit) if limit is not None and Version(transformers.__version__) > Version(str(limit)) else ""


def _export(subject: ModelSubject, folder: Path) -> None:
    from optimum.exporters.openvino import export_from_model

    model = _copy_of(subject.model)
    config: Any = model.config
    config.architectures = [type(model).__name__]  # what save_pretrained would write; loading needs it
    if not hasattr(config, "pad_token_id"):  # a checkpoint's own file names it, and the exporter's classes read it
        config.pad_token_id = getattr(config.get_text_config(), "pad_token_id", None)
    export_from_model(model, folder, task=exporter_task(subject))


def _copy_of(model: torch.nn.Module) -> Any:
    """The module with the very same weights: an exporter that fails half-way leaves what it changed as it is."""
    weights = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in weights})


def exporter_task(subject: ModelSubject) -> str:
    """What the exporter calls the task of this model, with a cache where it can: the first name that it knows."""
    known = set(_supported(subject))
    names = (subject.task, *openvino_names()["exporter_tasks"].get(subject.task, ()))
    wanted = [f"{name}-with-past" for name in names] if subject.generates != "none" else []
    return next((name for name in (*wanted, *names) if name in known), subject.task)


@functools.cache
def openvino_names() -> Mapping[str, Any]:
    """openvino.toml, as it is written."""
    with Path(__file__).with_name("openvino.toml").open("rb") as file:
        return tomllib.load(file)


def _supported(subject: ModelSubject) -> Mapping[str, Any]:
    """What the exporter's registry has for this model type, by task; empty where it doesn't know the type."""
    import optimum.exporters.openvino  # noqa: F401 - registers the configurations
    from optimum.exporters.tasks import TasksManager

    model_type: Any = getattr(getattr(subject.model, "config", None), "model_type", "")
    try:
        return dict(
            TasksManager.get_supported_tasks_for_model_type(model_type, "openvino", library_name="transformers")
        )
    except KeyError:
        return {}


def _exporter_class(subject: ModelSubject) -> Any:
    found = _supported(subject).get(exporter_task(subject))
    return getattr(found, "func", found)
