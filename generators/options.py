"""`Options`: the values of the command line's options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hwcompat.hardware.evidence.address import Address
from hwcompat.hardware.files import DEFAULT_EVIDENCE, DEFAULT_REPORTS, DEFAULT_SUITES

if TYPE_CHECKING:
    from hwcompat.hardware.evidence.store import Evidence


@dataclass(frozen=True, kw_only=True)
class Options:
    """The values of the command line's options; `hwcompat/cli/option_table.py` defines how each is given.

    `remote` is the address that `evidence` is a copy of, `pytest_arguments` are passed to pytest.
    """

    models: tuple[str, ...] = ()
    priority: str | None = None
    architectures: tuple[str, ...] = ()
    config: Path | None = None
    rules: tuple[Path, ...] = ()
    devices: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    dims: str = "tiny"
    length: int | None = None
    allow_tiny: bool = False
    allow_code: bool = False
    inputs: Path | None = None
    precisions: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    shard: str | None = None
    list_cells: bool = False
    run: bool = False
    timeout: float | None = None
    jobs: int | None = None
    resume: bool = False
    durable: bool = False
    measure: bool = False
    dry_run: bool = False
    distributed: str | None = None
    address: str | None = None
    allow_fallback: bool = False
    update_expected: bool = False
    expected: Path | None = None
    no_redact: bool = False
    machine: str = ""
    host: str | None = None
    host_python: str = "python3"
    host_checkpoints: tuple[str, ...] = ()
    host_patience: float = 600.0
    force: bool = False
    output_dir: Path = DEFAULT_SUITES
    evidence: Path = DEFAULT_EVIDENCE
    report_dir: Path = DEFAULT_REPORTS
    template_dir: Path | None = None
    by: str | None = None
    targets: tuple[str, ...] = ()
    baseline: Path | None = None
    fail_on: tuple[str, ...] = ()
    previous: Path | None = None
    fail_under: float | None = None
    pin: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    inventory: tuple[Path, ...] = ()
    in_turn: bool = False
    costs: Path | None = None
    serve: bool = False
    format_: str = "table"
    remote: Address | None = None
    pytest_arguments: tuple[str, ...] = ()

    @property
    def precision(self) -> str:
        """The one precision of a table: the first that was given."""
        return self.precisions[0] if self.precisions else "float32"

    def read_evidence(self) -> Evidence | None:
        """Return the evidence; None if no folder was named and the usual one doesn't exist yet.

        Raises `BrokenInput` if a named folder doesn't exist.
        """
        from hwcompat.hardware.evidence.store import read_folder

        return read_folder(self.evidence) if self.has_evidence else None

    @property
    def has_evidence(self) -> bool:
        """Whether a folder of evidence was named, or the usual one exists."""
        return self.evidence != DEFAULT_EVIDENCE or self.evidence.exists()
