"""`Cell`: the (model, task, target, precision) that a verdict is about, with one id everywhere.

It is part of this package because generated suites carry the id and are shipped with `hardware/` alone.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .errors import UsageError, did_you_mean, echo
from .target import Target

PRECISIONS = ("float32", "tf32", "float16", "bfloat16", "float8", "int8", "int4")

MODULE_TASK = "module-forward"
"""The task of a user's own module, of which only the forward pass is known."""

GRAPH_TASK = "graph-forward"
"""The task of a graph file."""

OPERATOR_TASK = "operator"
"""The task of a cell of one operator, whose model is its name."""

PIECES_TASK = "pieces"
"""The task of a model at real widths whose layers run one at a time."""

DIFFUSION_TASKS = frozenset(
    {"text-to-image", "image-to-image", "inpainting", "text-to-video", "image-to-video", "image-reconstruction"}
)
"""The tasks of diffusers models; transformers has `image-to-image` too."""

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,119}")
_TASK = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


_WEIGHTS = re.compile(r"@[0-9a-f]{8}$")
_DIGITS = 8


def model_of_weights(slug: str, weights_hash: str) -> str:
    """Return the model of a cell for a checkpoint: its slug, a label, and the hash of its weights."""
    return f"{slug[: 119 - _DIGITS]}@{weights_hash[:_DIGITS]}"


def label_of(model: str) -> str:
    """Return the model of a cell without the hash of its weights."""
    return _WEIGHTS.sub("", model)


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """One combination of `model`, `task`, `target` and `precision`.

    `model` is a model type (`bert`), or a checkpoint's slug with the first eight digits of its weights' hash
    (`all-MiniLM-L6-v2@1377e9af`). It never contains a slash.
    """

    model: str
    task: str
    target: Target
    precision: str = "float32"

    def __post_init__(self) -> None:
        if not _MODEL.fullmatch(self.model):
            raise UsageError(
                f"{echo(self.model)} is not a valid model name in a cell",
                why="allowed are letters, digits and ._@+-, at most 120 characters",
            )
        if not _TASK.fullmatch(self.task):
            raise UsageError(f"{echo(self.task)} is not the name of a task")
        if self.precision not in PRECISIONS:
            hint = did_you_mean(self.precision, PRECISIONS)
            fix = f"{hint} Known: {', '.join(PRECISIONS)}.".strip()
            raise UsageError(f"{echo(self.precision)} is not a precision", fix=fix)
        object.__setattr__(self, "target", self.target.kind)

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Return the cell with the id `text`. Raises `UsageError` for an invalid id."""
        parts = text.split("/")
        if len(parts) != 4:
            raise UsageError(
                f"{echo(text)} is not a cell",
                why="the format is model/task/target/precision",
                fix="For example: bert/fill-mask/cpu/float32.",
            )
        model, task, target, precision = parts
        return cls(model=model, task=task, target=Target.parse(target), precision=precision)

    @property
    def id(self) -> str:
        """Return the id, such as `bert/fill-mask/openvino:NPU/float32`: pytest id, JSON key, report anchor and
        selector."""
        return f"{self.model}/{self.task}/{self.target}/{self.precision}"

    @property
    def label(self) -> str:
        """Return the model without the hash of its weights, which several checkpoints may share."""
        return label_of(self.model)

    @property
    def slug(self) -> str:
        """Return a file name of `[a-z0-9_]`, different for models that differ only in case or punctuation."""
        model = self.model.replace("-", "_")
        if not re.fullmatch(r"[a-z0-9_]+", model):
            digest = hashlib.sha256(self.model.encode()).hexdigest()[:6]
            model = f"{re.sub(r'[^a-z0-9_]', '_', model.lower())}_{digest}"
        rest = re.sub(r"[^a-z0-9]", "_", f"{self.task}_{self.target}_{self.precision}".lower())
        return f"{model}_{rest}"

    def matches(self, pattern: str) -> bool:
        """Return whether the id matches an fnmatch pattern such as `bert/*/cpu/*`."""
        return fnmatchcase(self.id, pattern)

    def __str__(self) -> str:
        return self.id


def parsed(text: str) -> Cell | None:
    """Return the cell with this id, or None if the text isn't an id as cells write it."""
    try:
        cell = Cell.parse(text)
    except UsageError:
        return None
    return cell if cell.id == text else None
