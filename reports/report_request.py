"""`Request`: the values of the options of a report, and which of them go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.evidence.address import Address
from hwcompat.hardware.evidence.evidence_location import split_location
from hwcompat.hardware.files import DEFAULT_SUITES

_OF_MATRIX = ("markdown", "json", "html")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The values of a report's options; `hwcompat/cli/report_options.py` defines how each is given.

    `remote` is the address that `evidence` is a copy of.
    """

    collect_all: bool = False
    matrix: bool = False
    test_hardware: bool = False
    models: tuple[str, ...] = ()
    machine: str | None = None
    device: str | None = None
    precision: str | None = None
    batch: int | None = None
    context: int | None = None
    training: bool = False
    memory: tuple[str, ...] = ()
    without_memory: bool = False
    evidence: Path | None = None
    format: str = "markdown"
    output_dir: Path | None = None
    suites: Path = DEFAULT_SUITES
    fail_on: str = "error"
    baseline: Path | None = None
    anonymise_models: bool = False
    rules: tuple[Path, ...] = ()
    remote: Address | None = None

    @property
    def file_format(self) -> str:
        """The format of what is printed; a text that is written to a file is Markdown."""
        return "markdown" if self.output_dir and self.format == "text" else self.format

    @property
    def has_action(self) -> bool:
        """Whether a part of a report is requested."""
        return bool(self.wants_evidence or self.wants_report)

    @property
    def wants_evidence(self) -> bool:
        """Whether a requested part rests on evidence."""
        return bool(self.collect_all or self.matrix or self.models)

    @property
    def wants_report(self) -> bool:
        """Whether there is a report besides a matrix and the answers for single models."""
        return self.collect_all or self.test_hardware


def request_of(values: Mapping[str, Any]) -> Request:
    """Return the request of a command line; an address in object storage becomes the folder of its copy."""
    place = values.get("evidence")
    folder, remote = split_location(place) if place is not None else (None, None)
    return Request(**{**values, "evidence": folder, "remote": remote})


def check_report(request: Request) -> None:
    """Raise `UsageError` for options of a report that don't go together."""
    given = {
        "--device": request.device,
        "--precision": request.precision,
        "--batch": request.batch,
        "--context": request.context,
        "--training": request.training,
        "--memory": request.memory,
    }
    alone = next((name for name, value in given.items() if value), None)
    if alone and not request.models:
        raise UsageError(f"{alone} needs --model", fix=f"Name a model: hwcompat report --model bert {alone} …")
    if request.matrix and request.format not in _OF_MATRIX:
        raise UsageError(
            f"--matrix has no format {request.format}",
            fix=f"Use --format {', '.join(_OF_MATRIX[:-1])} or {_OF_MATRIX[-1]}, or leave --matrix out.",
        )
    if request.baseline and not (request.wants_report or request.models):
        raise UsageError(
            "--baseline compares findings, and --matrix has none",
            fix="Add --collect-all. To compare matrices: hwcompat matrix --baseline FILE.json",
        )
