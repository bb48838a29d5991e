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

from ..model.model_types import ModelInput, Unsupported
from .exported import Exported

if TYPE_CHECKING:
    import torch

    from ..model.model_types import Inputs

_METHOD = "optimum-intel"
_LIMIT = "MAX_TRANSFORMERS_VERSION"


def with_exporter(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Export with optimum-intel. Raises the exporter's own errors."""
    _export(model_input, folder)
    return Exported(folder=folder, method=_METHOD, decodes=model_input.generates != "none")


def beyond_limit(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Export a type whose exporter states a newest transformers and refuses this newer one.

    The limit is only stated; whether the export is right is measured afterwards.
    """
    with mock.patch.object(_exporter_class(model_input), _LIMIT, None):
        _export(model_input, folder)
    limit = f"transformers {limit_of(model_input)}"
    return Exported(folder=folder, method=_METHOD, exporter_limit=limit, decodes=model_input.generates != "none")


def limit_of(model_input: ModelInput) -> str:
    """Return the newest transformers that the exporter allows for this type, if this one is newer; else empty."""
    try:
        import transformers

        limit = getattr(_exporter_class(model_input), _LIMIT, None)
    except ImportError:  # there is no exporter, as the first way has reported
        return ""
    return str(limit) if limit is not None and Version(transformers.__version__) > Version(str(limit)) else ""


def _export(model_input: ModelInput, folder: Path) -> None:
    if hasattr(model_input.model, "sentence_modules"):
        raise Unsupported("it leaves out the modules of sentence-transformers", error_type="export_failed")
    from optimum.exporters.openvino import export_from_model

    model = _copy_of(model_input.model)
    config: Any = model.config
    config.architectures = [type(model).__name__]  # save_pretrained would write it; loading needs it
    if not hasattr(config, "pad_token_id"):  # in a checkpoint's own file, and read by the exporter
        config.pad_token_id = getattr(config.get_text_config(), "pad_token_id", None)
    export_from_model(model, folder, task=exporter_task(model_input))


def _copy_of(model: torch.nn.Module) -> Any:
    """Return a copy of the module with the very same weights, so that a failing exporter changes nothing."""
    weights = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in weights})


def exporter_task(model_input: ModelInput) -> str:
    """Return the exporter's name of a model's task, with a cache if possible: the first name that it knows."""
    known = set(_supported(model_input))
    names = (model_input.task, *openvino_names()["exporter_tasks"].get(model_input.task, ()))
    wanted = [f"{name}-with-past" for name in names] if model_input.generates != "none" else []
    return next((name for name in (*wanted, *names) if name in known), model_input.task)


@functools.cache
def openvino_names() -> Mapping[str, Any]:
    """Return the content of openvino.toml."""
    with Path(__file__).with_name("openvino.toml").open("rb") as file:
        return tomllib.load(file)


def _supported(model_input: ModelInput) -> Mapping[str, Any]:
    """Return the exporter's configurations for this model type, by task; empty for an unknown type."""
    import optimum.exporters.openvino  # noqa: F401 - registers the configurations
    from optimum.exporters.tasks import TasksManager

    model_type: Any = getattr(getattr(model_input.model, "config", None), "model_type", "")
    try:
        return dict(
            TasksManager.get_supported_tasks_for_model_type(model_type, "openvino", library_name="transformers")
        )
    except KeyError:
        return {}


def _exporter_class(model_input: ModelInput) -> Any:
    found = _supported(model_input).get(exporter_task(model_input))
    return getattr(found, "func", found)
