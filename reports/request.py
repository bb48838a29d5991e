"""What the reporter can be asked: its options, and which of them go together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hardware.errors import UsageError
from hardware.paths import DEFAULT_EVIDENCE

_EXAMPLE = "python hardware_compatibility_reporter.py --collect-all --matrix"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for on the command line."""

    collect_all: bool
    matrix: bool
    test_hardware: bool
    models: tuple[str, ...]
    device: str | None
    precision: str | None
    batch: int | None
    context: int | None
    training: bool
    memory: tuple[str, ...]
    without_memory: bool
    merged: tuple[Path, ...]
    compact: bool
    stress: Path | None
    remedies: tuple[str, ...]
    evidence: Path | None
    format: str
    output_dir: Path | None
    fail_on: str
    debug: bool

    @property
    def has_action(self) -> bool:
        return bool(
            self.collect_all
            or self.matrix
            or self.test_hardware
            or self.models
            or self.merged
            or self.compact
            or self.stress
            or self.remedies
        )

    @property
    def wants_evidence(self) -> bool:
        """Whether anything that was asked for rests on evidence."""
        return bool(self.collect_all or self.matrix or self.models)

    @property
    def wants_report(self) -> bool:
        """Whether there is a report beside a matrix and the answers for single models."""
        return self.collect_all or self.test_hardware


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--collect-all", is_flag=True, help="Report what every part and all evidence show."),
    click.option("--matrix", is_flag=True, help="Print the compatibility matrix."),
    click.option("--test-hardware", is_flag=True, help="Compute on every target that is here."),
    click.option("--check-model", "models", multiple=True, metavar="NAME", help="Does this model run? Repeatable."),
    click.option(
        "--stress", type=click.Path(path_type=Path), metavar="FILE", help="Show a stress run, with its curves."
    ),
    click.option(
        "--try-remedies",
        "remedies",
        multiple=True,
        metavar="CELL",
        help="Try what may turn this failing cell, in children. A pattern means failing cells of the evidence. "
        "Repeatable.",
    ),
    click.option("--device", metavar="TARGET", help="Target for --check-model; without it, the best that is here."),
    click.option(
        "--precision",
        type=click.Choice(["float32", "bfloat16", "float16"]),
        help="Precision of the model whose memory is told; without it, what its config.json names, or float32.",
    ),
    click.option("--batch", type=click.IntRange(1, 2**20), metavar="N", help="Examples at once, for its memory."),
    click.option("--context", type=click.IntRange(8, 2**24), metavar="N", help="Tokens of a text, for its memory."),
    click.option("--training", is_flag=True, help="Tell the memory of training it with AdamW."),
    click.option("--memory", multiple=True, metavar="SIZE", help="Does it fit into so much, as 24GiB? Repeatable."),
    click.option("--without-memory", is_flag=True, help="Leave out how much memory it takes, which takes seconds."),
    click.option(
        "--merge",
        "merged",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Check evidence from elsewhere and take it into the evidence folder first. Repeatable.",
    ),
    click.option(
        "--compact", is_flag=True, help="Put the finished files of the evidence folder into one Parquet file first."
    ),
    click.option(
        "--evidence",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help=f"Folder of evidence.  [default: {DEFAULT_EVIDENCE}]",
    ),
    click.option(
        "--format", type=click.Choice(["markdown", "json", "html", "junit"]), default="markdown", show_default=True
    ),
    click.option(
        "--output-dir", type=click.Path(path_type=Path), metavar="DIR", help="Write files instead of printing."
    ),
    click.option(
        "--fail-on",
        type=click.Choice(["critical", "error", "warning", "info"]),
        default="error",
        show_default=True,
        help="Exit with 1 for findings of this severity or worse.",
    ),
    click.option("--debug", is_flag=True, help="Show tracebacks."),
)


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command` with the options of a request, in the order in which help shows them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse_together(request: Request) -> None:
    """Raise `UsageError` where nothing was asked for, or what can't be asked for together."""
    if not request.has_action:
        raise UsageError(
            "nothing was asked for",
            why="one of --collect-all, --matrix, --test-hardware, --check-model, --merge, --compact, --stress, "
            "--try-remedies is needed",
            fix=f"For example: {_EXAMPLE}",
        )
    if request.device and not request.models:
        raise UsageError("--device needs --check-model", fix="Say which model: --check-model bert --device cpu")
    if not request.models and _asks_about_memory(request):
        raise UsageError(
            "--precision, --batch, --context, --training and --memory need --check-model",
            fix="Say which model: --check-model bert --memory 8GiB",
        )
    others = request.collect_all or request.matrix or request.test_hardware or request.models
    if request.stress is not None and (others or request.format == "junit"):
        raise UsageError(
            "--stress is a document of its own",
            why="it has no junit form and no place in another report",
            fix="Ask for it alone, with --format markdown, json or html.",
        )
    if request.remedies and (others or request.stress is not None or request.format not in ("markdown", "json")):
        raise UsageError(
            "--try-remedies is a job of its own",
            why="it runs cells, and tells what came of it as text or as data",
            fix="Ask for it alone, with --format markdown or json.",
        )
    if request.matrix and request.format == "junit":
        raise UsageError(
            "a matrix has no junit form", fix="Take --format markdown, json or html, or leave --matrix out."
        )


def _asks_about_memory(request: Request) -> bool:
    return bool(request.precision or request.batch or request.context or request.training or request.memory)
