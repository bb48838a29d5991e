"""The options of reports and of commands about single failures, by the name of their value in `Request`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import rich_click as click

from hwcompat.generators.options import Options
from hwcompat.hardware.command_line import PrecisionChoice, note
from hwcompat.hardware.evidence.evidence_location import EvidenceLocation, fetch_remote
from hwcompat.hardware.evidence.writer import make_durable
from hwcompat.hardware.files import DEFAULT_EVIDENCE, DEFAULT_SUITES
from hwcompat.hardware.redaction import LEFT_IN, turn_off
from hwcompat.hardware.step_times import measure_speed
from hwcompat.reports.report_request import request_of

from .option_table import OPTIONS, SEVERITIES, option, rules_of

_PATH = click.Path(path_type=Path)

REPORT_OPTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "evidence": option(
            "--evidence",
            type=EvidenceLocation(),
            metavar="DIR|ADDRESS",
            help=f"Folder of evidence, or s3://bucket/prefix.  [default: {DEFAULT_EVIDENCE}]",
        ),
        "output_dir": option("--output-dir", type=_PATH, metavar="DIR", help="Write files instead of printing."),
        "fail_on": option(
            "--fail-on",
            type=click.Choice(SEVERITIES),
            default="error",
            show_default=True,
            help="Exit with 1 for findings of this severity or worse.",
        ),
        "suites": option(
            "--suites",
            type=_PATH,
            metavar="DIR",
            default=DEFAULT_SUITES,
            show_default=True,
            help="Folder of the suites that sarif, github and gitlab point into.",
        ),
        "baseline": OPTIONS["baseline"],
        "anonymise_models": option(
            "--anonymize-models",
            "--anonymise-models",
            is_flag=True,
            help="Replace names and folders of models that aren't public types by pseudonyms.",
        ),
        "machine": option("--machine", metavar="NAME", help="Look at this machine's runs only."),
        "device": option("--device", metavar="TARGET", help="Target for --model. Default: the best that is here."),
        "precision": option(
            "--precision",
            type=PrecisionChoice(["float32", "bfloat16", "float16"]),
            help="Precision for the memory estimate. Default: that of its config.json, or float32.",
        ),
        "batch": option(
            "--batch", type=click.IntRange(1, 2**20), metavar="N", help="Examples per batch, for memory."
        ),
        "context": option(
            "--context", type=click.IntRange(8, 2**24), metavar="N", help="Tokens per text, for memory."
        ),
        "training": option("--training", is_flag=True, help="Estimate the memory of training with AdamW."),
        "memory": option(
            "--memory", multiple=True, metavar="SIZE", help="Check whether it fits, as 24GiB. Repeatable."
        ),
        "without_memory": option(
            "--without-memory", is_flag=True, help="Skip the memory estimate, which takes seconds."
        ),
        "collect_all": option(
            "--collect-all", is_flag=True, help="Report on the installed packages, the devices and all evidence."
        ),
        "matrix": option("--matrix", is_flag=True, help="Add the compatibility matrix."),
        "test_hardware": option(
            "--test-hardware", is_flag=True, help="Run a small computation on every target that is here."
        ),
        "rules": OPTIONS["rules"],
        "models": option(
            "--model",
            "--check-model",
            multiple=True,
            metavar="NAME",
            help="Report whether this model works. Repeatable.",
        ),
    }
)
"""How each value of a `Request` is given on the command line."""


def apply_evidence_options(asked: Options) -> None:
    """Leave names in what this process writes if `--no-redact` was given, after a note, and let each result wait for
    the disk with `--durable`, and speed be measured with `--measure`."""
    if asked.no_redact:
        turn_off()
        note(f"--no-redact: {LEFT_IN} stay in evidence and reports; check them before you share them")
    if asked.durable:
        make_durable()
    if asked.measure:
        measure_speed()


def requests(
    *names: str, formats: tuple[str, ...], folder: str = ""
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a function these options and `--format`; it gets them as one `Request`, with its arguments by name.

    `folder` is the help text of `--output-dir` for a command that always writes files.
    """

    def decorated(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def call(**values: Any) -> int:
            own = {name: values.pop(name) for name in [*values] if name not in names and name != "format"}
            request = request_of(values)
            if request.remote is not None:
                fetch_remote(request.remote)
            with rules_of(request.rules):
                return function(request, **own)

        choice = click.Choice(formats)
        called: Callable[..., int] = click.option("--format", type=choice, default=formats[0], show_default=True)(
            call
        )
        for name in reversed(names):
            own_help = {"help": folder} if folder and name == "output_dir" else {}
            called = REPORT_OPTIONS[name](name, **own_help)(called)
        return called

    return decorated
