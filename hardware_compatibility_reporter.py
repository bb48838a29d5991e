"""`python hardware_compatibility_reporter.py`: what works where, what doesn't, why, and what to change."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hardware.paths import DEFAULT_EVIDENCE, DEFAULT_REPORTS

if TYPE_CHECKING:
    from generators.compatibility.matrix import Matrix
    from hardware.evidence.store import Evidence
    from reports.memory_check import MemoryCheck
    from reports.model_check import ModelCheck
    from reports.report import Report
    from reports.reporter import HardwareCompatibilityReporter

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
        )

    @property
    def wants_evidence(self) -> bool:
        """Whether anything that was asked for rests on evidence."""
        return bool(self.collect_all or self.matrix or self.models)

    @property
    def wants_report(self) -> bool:
        """Whether there is a report beside a matrix and the answers for single models."""
        return self.collect_all or self.test_hardware


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--collect-all", is_flag=True, help="Report what every part and all evidence show.")
@click.option("--matrix", is_flag=True, help="Print the compatibility matrix.")
@click.option("--test-hardware", is_flag=True, help="Compute on every target that is here.")
@click.option("--check-model", "models", multiple=True, metavar="NAME", help="Does this model run? Repeatable.")
@click.option("--stress", type=click.Path(path_type=Path), metavar="FILE", help="Show a stress run, with its curves.")
@click.option("--device", metavar="TARGET", help="Target for --check-model; without it, the best that is here.")
@click.option(
    "--precision",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Precision of the model whose memory is told; without it, what its config.json names, or float32.",
)
@click.option("--batch", type=click.IntRange(1, 2**20), metavar="N", help="Examples at once, for its memory.")
@click.option("--context", type=click.IntRange(8, 2**24), metavar="N", help="Tokens of a text, for its memory.")
@click.option("--training", is_flag=True, help="Tell the memory of training it with AdamW.")
@click.option("--memory", multiple=True, metavar="SIZE", help="Does it fit into so much, as 24GiB? Repeatable.")
@click.option("--without-memory", is_flag=True, help="Leave out how much memory it takes, which takes seconds.")
@click.option(
    "--merge",
    "merged",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Check evidence from elsewhere and take it into the evidence folder first. Repeatable.",
)
@click.option(
    "--compact", is_flag=True, help="Put the finished files of the evidence folder into one Parquet file first."
)
@click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Folder of evidence.  [default: {DEFAULT_EVIDENCE}]",
)
@click.option(
    "--format", type=click.Choice(["markdown", "json", "html", "junit"]), default="markdown", show_default=True
)
@click.option("--output-dir", type=click.Path(path_type=Path), metavar="DIR", help="Write files instead of printing.")
@click.option(
    "--fail-on",
    type=click.Choice(["critical", "error", "warning", "info"]),
    default="error",
    show_default=True,
    help="Exit with 1 for findings of this severity or worse.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def cli(**options: object) -> int:
    """Say what works where, from rules and evidence. Actions combine.

    \b
    Example: python hardware_compatibility_reporter.py --collect-all --matrix
    Exit codes: 0 clean, 1 findings, 2 interrupted, 3 internal error, 4 usage.
    """
    return run(Request(**options))  # type: ignore[arg-type] # click gives what the options above declare


def run(request: Request) -> int:
    """Do what was asked, print or write it, and return the exit code."""
    from reports.finding import Severity
    from reports.reporter import HardwareCompatibilityReporter

    _check(request)
    for source in request.merged:
        _merge(source, request.evidence or DEFAULT_EVIDENCE)
    if request.compact:
        _compact(request.evidence or DEFAULT_EVIDENCE)
    if request.stress is not None:
        return _show_stress(request, request.stress)
    evidence = _evidence(request)
    reporter = HardwareCompatibilityReporter(evidence, output_folder=request.output_dir or DEFAULT_REPORTS)
    answers = [_answer(request, reporter, name) for name in request.models]
    if request.collect_all:
        _collect_all(reporter)
    if request.test_hardware:
        _note("computing on every target that is here …")
        reporter.test_full_hardware_stack()
    report = _report(request, reporter, answers)
    _deliver(request, reporter, report, answers)
    limit = Severity(request.fail_on).rank
    return 1 if any(finding.severity.rank >= limit for finding in report.findings) else 0


def _show_stress(request: Request, path: Path) -> int:
    import json

    from hardware.errors import OutputError
    from reports.formats import SUFFIXES
    from reports.stress import load_stress, stress_markdown

    run = load_stress(path)
    if request.format == "html":
        from reports.html.stress_html import stress_html

        text = stress_html(run)
    else:
        text = stress_markdown(run) if request.format == "markdown" else json.dumps(run, indent=2) + "\n"
    if request.output_dir is None:
        click.echo(text, nl=False)
    else:
        file = request.output_dir / f"stress_run.{SUFFIXES[request.format]}"
        try:
            request.output_dir.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise OutputError(f"can't write {file}", why=error.strerror or str(error)) from error
        _note(f"written: {file}")
    return int(any(one["ending"] not in ("measured", "skipped") for one in run["results"]))


def _check(request: Request) -> None:
    from hardware.errors import UsageError

    if not request.has_action:
        raise UsageError(
            "nothing was asked for",
            why="one of --collect-all, --matrix, --test-hardware, --check-model, --merge, --compact, --stress "
            "is needed",
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
    if request.matrix and request.format == "junit":
        raise UsageError(
            "a matrix has no junit form", fix="Take --format markdown, json or html, or leave --matrix out."
        )


def _asks_about_memory(request: Request) -> bool:
    return bool(request.precision or request.batch or request.context or request.training or request.memory)


def _memory(request: Request, reporter: HardwareCompatibilityReporter, name: str) -> MemoryCheck | None:
    if request.without_memory:
        return None
    from hardware.detection import targets
    from reports.memory_check import MemoryQuestion, memory_check

    _note(f"running {name} without data, to see how much memory it takes …")
    question = MemoryQuestion(
        mode="training" if request.training else None,
        precision=request.precision,
        batch=request.batch,
        context=request.context,
        sizes=request.memory,
    )
    return memory_check(name, request.device, question, targets(reporter.inventory()))


def _evidence(request: Request) -> Evidence | None:
    """The evidence to report on; None where the default folder isn't there, which only means that nothing ran."""
    from hardware.evidence.store import read_folder

    if request.evidence is not None:
        return read_folder(request.evidence)
    if not request.wants_evidence:
        return None
    if DEFAULT_EVIDENCE.is_dir():
        return read_folder(DEFAULT_EVIDENCE)
    _note(f"there is no evidence in {DEFAULT_EVIDENCE}: nothing was measured")
    return None


def _merge(source: Path, folder: Path) -> None:
    from hardware.evidence.merge import merge_evidence

    for one in merge_evidence(source, folder):
        cut = "; its last line was cut off and is left out" if one.cut else ""
        _note(f"{one.name}: {one.state}, {one.lines} line(s){cut}")


def _compact(folder: Path) -> None:
    from hardware.evidence.compacted import compact

    done = compact(folder)
    if done.path is None:
        _note(f"nothing in {folder} can be compacted")
    else:
        _note(f"{done.path}: {done.files} file(s), {done.lines} line(s)")
    for name, why in done.left:
        _note(f"{name} is left as it is: {why}")


def _collect_all(reporter: HardwareCompatibilityReporter) -> None:
    reporter.check_components()
    reporter.collect_hardware_detection_errors()
    reporter.collect_resource_pool_errors()
    reporter.collect_compatibility_test_errors()
    # A checkpoint's slug needs to be known to nobody: what ran was classified by its folder.
    for model in sorted({line.model for line in reporter.checks if line.subject != "checkpoint"}):
        reporter.collect_model_integration_errors(model)


def _answer(request: Request, reporter: HardwareCompatibilityReporter, name: str) -> ModelCheck:
    from generators.compatibility.verdict import Level
    from hardware.errors import ModelError
    from hardware.software import is_installed
    from reports.model_check import check_model, without_transformers

    memory = _memory(request, reporter, name)
    try:
        answer = check_model(name, request.device, reporter.evidence, reporter.checks, reporter.inventory(), memory)
    except ModelError as error:
        if is_installed("transformers"):
            raise
        reporter.collect_model_integration_errors(name)
        return replace(without_transformers(name, request.device, error), memory=memory)
    if answer.measured.level is not Level.UNKNOWN or answer.findings:
        return answer
    target = answer.measured.cell.split("/")[2]
    if request.device not in (None, "auto") and answer.absent:
        text, kind, severity = f"{target} was asked for and is not here: {answer.absent}", answer.absence, "error"
    else:
        text, kind, severity = f"{answer.measured.cell}: {answer.cause}", "not_measured", "warning"
    reporter.add_error(
        target,
        kind,
        text,
        severity=severity,
        component="model_check",
        model_name=answer.model,
        command=answer.command,
    )
    return answer


def _report(request: Request, reporter: HardwareCompatibilityReporter, answers: Sequence[ModelCheck]) -> Report:
    from reports.finding import worst_first

    report = reporter.report()
    if not request.collect_all:  # else these findings, and those of other models, are there already
        own = {finding.id: finding for answer in answers for finding in answer.findings}
        report = replace(report, findings=worst_first([*report.findings, *own.values()]))
        cells = {answer.measured.cell for answer in answers}
        checks = tuple(line for line in report.checks if line.cell_id in cells)
        report = replace(report, checks=checks, evidence_asked=bool(answers))
    return replace(report, model_checks=tuple(answer.to_dict() for answer in answers))


def _deliver(
    request: Request, reporter: HardwareCompatibilityReporter, report: Report, answers: Sequence[ModelCheck]
) -> None:
    for name, text in _products(request, reporter, report, answers):
        if request.output_dir is None:
            click.echo(text, nl=False)
        else:
            _note(f"written: {reporter.save_to_file(text, name)}")


def _products(
    request: Request, reporter: HardwareCompatibilityReporter, report: Report, answers: Sequence[ModelCheck]
) -> list[tuple[str, str]]:
    """File names and texts: in Markdown one text for each thing that was asked for, else one document."""
    from reports.formats import SUFFIXES, report_text

    matrix = reporter.matrix() if request.matrix else None
    name = f"hardware_compatibility_report.{SUFFIXES[request.format]}"
    if request.format != "markdown":
        if matrix is None:
            return [(name, report_text(report, request.format))]
        from hardware.evidence.versions import versions_of

        versions = versions_of(reporter.inventory())
        if not (request.wants_report or answers):
            return [
                (f"compatibility_matrix.{SUFFIXES[request.format]}", _matrix_text(matrix, request.format, versions))
            ]
        return [(name, report_text(replace(report, matrix=matrix.to_dict(), versions=versions), request.format))]
    products = []
    if answers:
        products.append(("model_checks.txt", "".join(answer.text for answer in answers)))
    if request.wants_report:
        products.append((name, ("\n" if products and not request.output_dir else "") + report_text(report)))
    if matrix is not None:
        from reports.matrix_text import matrix_text

        before = "\n" if products and not request.output_dir else ""
        text = f"{before}# Compatibility matrix\n\n{matrix_text(matrix, 'markdown')}"
        products.append(("compatibility_matrix.md", text))
    return products


def _matrix_text(matrix: Matrix, format: str, versions: Mapping[str, str]) -> str:
    """A document that holds the matrix alone, as the main command's --hardware-compatibility makes it."""
    if format == "html":
        from reports.html.matrix_html import matrix_html

        return matrix_html(matrix.to_dict(), versions=versions)
    from reports.matrix_text import matrix_text

    return matrix_text(matrix, format)


def _note(text: str) -> None:
    """Progress and remarks go to standard error, with nothing that a terminal would obey."""
    from reports.text import one_line

    click.echo(one_line(text, longest=2000), err=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and turn every error into one line and an exit code."""
    from hardware.front_door import open_door

    own = list(sys.argv[1:] if arguments is None else arguments)
    return open_door(cli, own, program="hardware_compatibility_reporter.py")


if __name__ == "__main__":
    sys.exit(main())
