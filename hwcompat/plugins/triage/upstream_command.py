"""`hwcompat upstream`: run transformers' own tests of the chosen models on each device, as reference tests."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from packaging.utils import canonicalize_version

from hwcompat.generators.models.catalog import load_catalog, source_names
from hwcompat.generators.options import Options
from hwcompat.hardware.backends.factory import backend_class, detect_best_backend, resolve_target
from hwcompat.hardware.basic_detection import inventory_here
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.command_line import INTERRUPTED, terminal_width
from hwcompat.hardware.errors import BrokenInput, ModelError, NothingMatched, UsageError, echo
from hwcompat.hardware.evidence.record import Origin, Outcome, RunLine, WeightsKind
from hwcompat.hardware.evidence.versions import versions_of
from hwcompat.hardware.evidence.writer import EvidenceWriter, machine_label, new_run_id, now
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.check_lines import line_for
from hwcompat.hardware.testing.progress import counted
from hwcompat.hardware.testing.suite_file import SuiteFile

from .upstream.children import FileRun, UpstreamTest, run_file
from .upstream.device_spec import torch_backend

TASK = "upstream-tests"
"""The task in the ids of cells: transformers tests all classes of a type in one file."""

UNSEEN = "placement: transformers' tests read which device to use, but don't prove that it computed"

LIBRARY = "transformers"
_SOURCE = Path("src", LIBRARY, "__init__.py")
_VERSION = re.compile(r"^__version__\s*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)
_MOST_SHOWN = 20


def report_upstream(asked: Options, folder: Path, command: str) -> int:
    """Run the tests and print their outcomes; return the exit code of the worst of them.

    Raises what `run_file` raises, without evidence; `OutputError` if evidence can't be written.
    """
    _check(asked)
    agree_with_installed(read_checkout(folder))
    targets = _targets(asked.devices)
    catalog = load_catalog()
    paths = {name: modeling_tests(folder, source_names(name)) for name in asked.models if catalog.config_class(name)}
    inventory = inventory_here()
    codes = []
    for name, path in paths.items():
        for target in targets:
            click.echo(f"note: {path.name} on {target} …", err=True)
            cell = Cell(model=name, task=TASK, target=target)
            writer = EvidenceWriter(asked.evidence, new_run_id())
            started_at = now()
            try:
                run = run_file(
                    folder.resolve(),
                    path.resolve(),
                    target,
                    timeout_s=asked.timeout or backend_class(target.name).DEADLINE_S,
                    pytest_arguments=asked.pytest_arguments,
                    on_test=_show,
                )
            except BaseException:
                writer.close()
                writer.path.unlink(missing_ok=True)
                raise
            machine = asked.machine or machine_label()
            write_run(writer, run, cell, inventory, started_at=started_at, command=command, machine=machine)
            codes.append(_exit_code(run))
            click.echo(_text(run, cell, writer.path))
            if run.interrupted:
                click.echo("error: interrupted: results so far are kept, the other tests are not_run", err=True)
                return INTERRUPTED
    click.echo("These are reference tests: they don't set a level and don't count as checks.", err=True)
    return max(codes, key=lambda code: (code == 1, code))


def _check(asked: Options) -> None:
    if not asked.models or "-" in asked.models:
        raise UsageError("upstream needs model types", fix="For example: --model bert --model vit")


def read_checkout(folder: Path) -> str:
    """Return the version in the sources of a checkout. Raises `BrokenInput` if there is none."""
    if not folder.is_dir():
        raise BrokenInput(f"{echo(str(folder))} isn't a folder", fix=f"Pass a checkout of {LIBRARY}.")
    source = folder / _SOURCE
    found = _VERSION.search(source.read_text(encoding="utf-8", errors="replace")) if source.is_file() else None
    if found is None:
        raise BrokenInput(f"{echo(str(folder))} isn't a checkout of {LIBRARY}", why=f"{_SOURCE} has no version")
    return found[1]


def agree_with_installed(version: str) -> None:
    """Raise `UsageError` with both versions if the installed one isn't the checkout's: its tests would test another
    library than the one that runs models here."""
    try:
        installed = importlib.metadata.version(LIBRARY)
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(f"{LIBRARY} isn't installed", fix=f"pip install {LIBRARY}=={version}") from error
    if canonicalize_version(installed) != canonicalize_version(version):
        raise UsageError(
            f"the checkout is {LIBRARY} {version}, but {installed} is installed",
            why="tests of one version don't apply to another",
            fix=f"Check out v{installed}, or install {LIBRARY}=={version}.",
        )


def modeling_tests(checkout: Path, names: Sequence[tuple[str, str]]) -> Path:
    """Return the file with the tests of a model: the first `tests/models/<folder>/test_modeling_<module>.py` for a
    pair of `names`, or the only one of the first module's name in any folder. Raises `ModelError`."""
    models = checkout / "tests" / "models"
    for folder, module in names:
        path = models / folder / f"test_modeling_{module}.py"
        if path.is_file():
            return path
    name = f"test_modeling_{names[0][1]}.py"
    elsewhere = sorted(models.glob(f"*/{name}"))
    if len(elsewhere) == 1:
        return elsewhere[0]
    raise ModelError(
        f"{echo(str(checkout))} has no tests of {names[0][0]}",
        why=f"tests/models has {'several files' if elsewhere else 'no file'} {name}",
        fix="" if models.is_dir() else "Pass the root of a checkout; a source distribution has no tests of models.",
    )


def _targets(devices: Sequence[str]) -> tuple[Target, ...]:
    """Return the named targets; for `auto` or without names the best target that torch can use here."""
    names = [detect_best_backend() if name == "auto" else name for name in devices or ("auto",)]
    found = tuple(dict.fromkeys(resolve_target(name) for name in names))
    for target in found:
        torch_backend(target)
    return found


def _show(name: str) -> None:
    """Show the running test, on a line of a terminal that is overwritten."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{one_line(name, longest=terminal_width() - 1)}", nl=False, err=True)


def _exit_code(run: FileRun) -> int:
    """Return 1 if a test failed or wasn't reached, 5 if none passed or failed, else 0."""
    unreached = ("not_reached", "device_lost", "interrupted")
    if run.failures or any(test.error_type in unreached for test in run.tests):
        return 1
    return 0 if any(test.outcome is Outcome.PASSED for test in run.tests) else NothingMatched.exit_code


def _text(run: FileRun, cell: Cell, evidence: Path) -> str:
    """Return the counts, each failure with its message, why tests were skipped, and the path of the evidence."""
    why = Counter(test.error_type for test in run.tests if test.outcome is Outcome.NOT_RUN)
    left_out = f" ({', '.join(f'{number} {name}' for name, number in sorted(why.items()))})" if why else ""
    lines = [
        f"{cell.model} on {cell.target}: {counted(Counter(test.outcome for test in run.tests))}{left_out}",
        f"  {_library(run)}, {len(run.tests)} tests, torch_device {run.session['torch_device']}",
    ]
    lines += [
        f"  {test.outcome}  {one_line(test.name)}: {one_line(test.message, longest=160)}"
        for test in run.failures[:_MOST_SHOWN]
    ]
    if len(run.failures) > _MOST_SHOWN:
        lines.append(f"  and {len(run.failures) - _MOST_SHOWN} more failures (listed in the evidence)")
    return "\n".join([*lines, f"  evidence: {evidence}"])


def write_run(
    writer: EvidenceWriter,
    run: FileRun,
    cell: Cell,
    inventory: HardwareInfo,
    *,
    started_at: str,
    command: str,
    machine: str,
) -> None:
    """Write the tests of a file as a run of another origin: the run line, a line for each test, and the end."""
    suite = SuiteFile(
        path=run.path,
        cell=cell,
        subject=WeightsKind.TINY,
        checks=tuple(test.name for test in run.tests),
        suite_hash=hashlib.sha256(run.path.read_bytes()).hexdigest()[:16],
    )
    writer.write(
        RunLine(
            run_id=writer.run_id,
            started_at=started_at,
            command=command,
            machine=machine,
            inventory=inventory.to_dict(),
            versions=versions_of(inventory),
            plan=(replace(suite.planned(), modeling=""),),  # no recipe is used
            isolation="the tests of a file share a process, which is replaced after a crash or a timeout",
            origin=Origin.TRANSFORMERS,
        )
    )
    conditions = {"tests of": _library(run), "torch_device": run.session["torch_device"]}
    for test in run.tests:
        line = line_for(
            suite,
            writer.run_id,
            test.name,
            test.outcome,
            duration_s=test.duration_s,
            conditions=conditions,
            error_type=test.error_type,
            error_message=test.message,
            traceback=test.traceback,
            **_where(test, cell, run),
        )
        writer.write(replace(line, origin=Origin.TRANSFORMERS))
    writer.end("interrupted" if run.interrupted else "done", Counter(str(test.outcome) for test in run.tests))
    writer.close()


def _library(run: FileRun) -> str:
    return f"{LIBRARY} {run.session['transformers']}"


def _where(test: UpstreamTest, cell: Cell, run: FileRun) -> dict[str, Any]:
    if test.outcome not in (Outcome.PASSED, Outcome.FAILED):
        return {}
    return {"actual_target": str(cell.target), "accelerator": run.session.get("device_name"), "unseen": UNSEEN}
