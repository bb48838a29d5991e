"""The options of the reporter, and which of them go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import click

from hardware.command_line import PrecisionChoice
from hardware.errors import UsageError, did_you_mean, echo
from hardware.evidence.address import Address
from hardware.evidence.evidence_location import EvidenceLocation, split_location
from hardware.files import DEFAULT_EVIDENCE, DEFAULT_SUITES

from .formats import FORMATS

_EXAMPLE = "python hardware_compatibility_reporter.py --collect-all --matrix"


_TOGETHER = ("--collect-all", "--matrix", "--test-hardware", "--check-model", "--merge", "--compact", "--publish")
_OF_REPORT = FORMATS.names()
_OF_MATRIX = ("markdown", "json", "html")
_ALONE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "--stress": ("stress", ("markdown", "json", "html")),
    "--compare": ("compare", ("text", "markdown", "json")),
    "--diagnose": ("diagnosed", ("markdown", "json")),
    "--localize": ("localized", ("markdown", "json")),
    "--repro": ("repro", ("markdown",)),
    "--try-remedies": ("remedies", ("markdown", "json")),
}
"""Documents of their own: the field that requests each, and its formats."""


def _option(*names: str, **settings: Any) -> Any:
    """Return a field whose value is that of an option."""
    return field(metadata={"add": lambda name: click.option(*names, name, **settings)})


@dataclass(frozen=True, kw_only=True)
class Request:
    """The request of a command line: each field with its option, in the order of the help."""

    collect_all: bool = _option("--collect-all", is_flag=True, help="Report what every part and all evidence show.")
    matrix: bool = _option("--matrix", is_flag=True, help="Print the compatibility matrix.")
    test_hardware: bool = _option("--test-hardware", is_flag=True, help="Compute on every target that is here.")
    models: tuple[str, ...] = _option(
        "--check-model", multiple=True, metavar="NAME", help="Does this model run? Repeatable."
    )
    stress: Path | None = _option(
        "--stress", type=click.Path(path_type=Path), metavar="FILE", help="Show a stress run, with its curves."
    )
    compare: str | None = _option(
        "--compare",
        is_flag=False,
        flag_value="",
        metavar="A [B]",
        help="What changed from A to B (default: latest), and by what. Each is a run's id or its beginning, a "
        "machine, a folder of evidence, latest, or previous (the run before the other one). last-green: when what is "
        "broken now was last green, as of B. Without A, the last runs.",
    )
    operands: tuple[str, ...] = field(metadata={"add": lambda name: click.argument(name, nargs=-1, metavar="")})
    machine: str | None = _option(
        "--machine", metavar="NAME", help="With --compare: look at this machine's runs alone."
    )
    diagnosed: str | None = _option(
        "--diagnose",
        metavar="FILE|-",
        help="Say what a traceback or log shows, and what to do; - reads what is pasted.",
    )
    localized: str | None = _option(
        "--localize",
        metavar="CELL",
        help="Name the first module or node that differs from the reference: bert/fill-mask/cpu/float32.",
    )
    repro: str | None = _option(
        "--repro",
        metavar="CELL",
        help="Write a script that shows a cell's failure without this product, checked that it fails the same way.",
    )
    remedies: tuple[str, ...] = _option(
        "--try-remedies",
        multiple=True,
        metavar="CELL",
        help="Try what may turn this failing cell, in children. A pattern means failing cells of the evidence. "
        "Repeatable.",
    )
    device: str | None = _option(
        "--device", metavar="TARGET", help="Target for --check-model; without it, the best that is here."
    )
    precision: str | None = _option(
        "--precision",
        type=PrecisionChoice(["float32", "bfloat16", "float16"]),
        help="Precision for the memory estimate; default: what its config.json names, or float32.",
    )
    batch: int | None = _option(
        "--batch", type=click.IntRange(1, 2**20), metavar="N", help="Examples at once, for its memory."
    )
    context: int | None = _option(
        "--context", type=click.IntRange(8, 2**24), metavar="N", help="Tokens of a text, for its memory."
    )
    training: bool = _option("--training", is_flag=True, help="Tell the memory of training it with AdamW.")
    memory: tuple[str, ...] = _option(
        "--memory", multiple=True, metavar="SIZE", help="Does it fit into so much, as 24GiB? Repeatable."
    )
    without_memory: bool = _option(
        "--without-memory", is_flag=True, help="Leave out how much memory it takes, which takes seconds."
    )
    merged: tuple[Path | Address, ...] = _option(
        "--merge",
        multiple=True,
        type=EvidenceLocation(),
        metavar="DIR|FILE|ADDRESS",
        help="Check evidence from elsewhere, a folder, what a page saved, or s3://bucket/prefix, and take it into "
        "the evidence folder first. Repeatable.",
    )
    compact: bool = _option(
        "--compact",
        is_flag=True,
        help="Put the finished files of the evidence folder into Parquet files by month first.",
    )
    published: Path | Address | None = _option(
        "--publish",
        type=EvidenceLocation(),
        metavar="ADDRESS",
        help="Put the evidence of finished runs into object storage first: s3://bucket/prefix.",
    )
    evidence: Path | None = _option(
        "--evidence",
        type=EvidenceLocation(),
        metavar="DIR|ADDRESS",
        help="Folder of evidence, or its address in object storage: s3://bucket/prefix.  "
        f"[default: {DEFAULT_EVIDENCE}]",
    )
    format: str = _option(
        "--format",
        metavar="FORM",
        default="markdown",
        show_default=True,
        help=f"Of a report: {', '.join(_OF_REPORT)}. Of --matrix: {', '.join(_OF_MATRIX)}. "
        + " ".join(f"Of {option}: {', '.join(forms)}." for option, (_, forms) in _ALONE.items())
        + " github: a job's summary, into $GITHUB_STEP_SUMMARY where that is set, and annotations.",
    )
    output_dir: Path | None = _option(
        "--output-dir", type=click.Path(path_type=Path), metavar="DIR", help="Write files instead of printing."
    )
    suites: Path = _option(
        "--suites",
        type=click.Path(path_type=Path),
        metavar="DIR",
        default=DEFAULT_SUITES,
        show_default=True,
        help="Folder of the suites that sarif, github and gitlab point into.",
    )
    fail_on: str = _option(
        "--fail-on",
        type=click.Choice(["critical", "error", "warning", "info"]),
        default="error",
        show_default=True,
        help="Exit with 1 for findings of this severity or worse.",
    )
    baseline: Path | None = _option(
        "--baseline",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE.json",
        help="A report that was kept as JSON: only what is new or worse since counts for --fail-on.",
    )
    anonymise_models: bool = _option(
        "--anonymise-models",
        is_flag=True,
        help="Replace the names of models that aren't public types, and their folders, by pseudonyms.",
    )
    debug: bool = _option("--debug", is_flag=True, help="Show tracebacks.")
    remote: Address | None = None

    @property
    def has_action(self) -> bool:
        """Whether anything is requested."""
        alone = any(getattr(self, field) not in (None, ()) for field, _ in _ALONE.values())
        kept = self.merged or self.compact or self.published
        return bool(self.wants_evidence or self.wants_report or kept or alone)

    @property
    def wants_evidence(self) -> bool:
        """Whether a requested part rests on evidence."""
        return bool(self.collect_all or self.matrix or self.models)

    @property
    def wants_report(self) -> bool:
        """Whether there is a report besides a matrix and the answers for single models."""
        return self.collect_all or self.test_hardware


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a request to `command`."""
    for one in reversed(fields(Request)):
        command = one.metadata["add"](one.name)(command) if one.metadata else command
    return command


def request_of(options: Mapping[str, Any]) -> Request:
    """Return the request of a command line; an address in object storage becomes the folder of its copy."""
    place = options.get("evidence")
    folder, remote = split_location(place) if place is not None else (None, None)
    return Request(**{**options, "evidence": folder, "remote": remote})


def refuse_together(request: Request) -> None:
    """Raise `UsageError` if nothing was requested, or if options don't go together."""
    if not request.has_action:
        raise UsageError(
            "nothing was asked for",
            why=f"one of {', '.join((*_TOGETHER, *_ALONE))} is needed",
            fix=f"For example: {_EXAMPLE}",
        )
    if request.device and not request.models:
        raise UsageError("--device needs --check-model", fix="Say which model: --check-model bert --device cpu")
    about_memory = (request.precision, request.batch, request.context, request.training, request.memory)
    if not request.models and any(about_memory):
        raise UsageError(
            "--precision, --batch, --context, --training and --memory need --check-model",
            fix="Say which model: --check-model bert --memory 8GiB",
        )
    _refuse_beside(request)
    _refuse_places(request)
    if request.matrix and request.format not in _OF_MATRIX:
        raise UsageError(
            f"a matrix has no form {echo(request.format)}",
            fix=f"Take --format {_listed(_OF_MATRIX)}, or leave --matrix out.",
        )
    if request.baseline and not (request.wants_report or request.models):
        raise UsageError(
            "--baseline needs findings to hold against it",
            why="--matrix alone has none",
            fix="Add --collect-all; matrices are compared by run_test_generation.py --hardware-compatibility "
            "--baseline FILE.json.",
        )


def _refuse_places(request: Request) -> None:
    """Refuse to write to object storage except with --publish, and --publish to anything else."""
    if request.remote is not None and (request.merged or request.compact or request.published):
        raise UsageError(
            f"nothing is done to the evidence in {request.remote}",
            why="--merge, --compact and --publish start from a folder",
            fix=f"Copy it to this machine first: --merge {request.remote} --evidence FOLDER",
        )
    if request.published is not None and not isinstance(request.published, Address):
        raise UsageError(
            f"--publish puts evidence into object storage, and {echo(str(request.published))} is a folder",
            fix="Name an address, as s3://bucket/prefix; into a folder it is taken by --evidence THERE --merge HERE.",
        )


def _refuse_beside(request: Request) -> None:
    """Refuse documents of their own beside other parts, and options without the document that they belong to."""
    alone = [option for option, (field, _) in _ALONE.items() if getattr(request, field) not in (None, ())]
    if request.compare is None and request.operands:
        raise UsageError(f"nothing takes {echo(request.operands[0])}", fix=f"For example: {_EXAMPLE}")
    if request.compare is None and request.machine:
        raise UsageError("--machine needs --compare", fix="For example: --compare last-green --machine lab")
    if not alone:
        if request.format not in _OF_REPORT:
            raise UsageError(
                f"a report has no form {echo(request.format)}",
                fix=did_you_mean(request.format, _OF_REPORT) or f"Take --format {_listed(_OF_REPORT)}.",
            )
        return
    forms = _ALONE[alone[0]][1]
    if len(alone) > 1 or request.wants_evidence or request.wants_report or request.format not in forms:
        raise UsageError(
            f"{alone[0]} is a document of its own",
            why=f"it has no form but {_listed(forms)}, and no place in another report",
            fix=f"Ask for it alone, with --format {_listed(forms)}.",
        )


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
