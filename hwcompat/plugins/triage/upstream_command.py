"""`--upstream`: transformers' own tests of the models that were chosen, each on each device, as a second opinion."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from generators.models.catalog import load_catalog, source_names
from generators.options import Options
from hardware.backends.factory import backend_class, detect_best_backend, resolve_target
from hardware.basic_detection import inventory_here
from hardware.errors import UsageError
from hardware.front_door import INTERRUPTED, terminal_width
from hardware.plain_text import one_line
from hardware.target import Target
from hardware.testing.progress import counted
from hwcompat.plugins.triage.upstream.checkout import agree_with_installed, read_checkout
from hwcompat.plugins.triage.upstream.device_spec import torch_backend
from hwcompat.plugins.triage.upstream.session import UpstreamResult, run_upstream

_MOST_SHOWN = 20


def report_upstream(asked: Options, folder: Path, command: str) -> int:
    """Run the tests and say what they came to; returns the exit code: that of the worst of them."""
    _check(asked)
    checkout = read_checkout(folder)
    agree_with_installed(checkout)
    targets = _targets(asked.devices)
    catalog = load_catalog()
    paths = {name: checkout.tests_of(source_names(name)) for name in asked.models if catalog.config_class(name)}
    inventory = inventory_here()
    results = []
    for name, path in paths.items():
        for target in targets:
            click.echo(f"note: {path.name} on {target} …", err=True)
            result = run_upstream(
                checkout,
                path,
                name,
                target,
                inventory,
                evidence=asked.evidence,
                command=command,
                machine=asked.machine,
                timeout_s=asked.timeout or backend_class(target.name).DEADLINE_S,
                pytest_arguments=asked.pytest_arguments,
                on_test=_show,
            )
            results.append(result)
            click.echo(upstream_text(result))
            if result.interrupted:
                click.echo("error: interrupted: what was done is kept, the rest is not_run", err=True)
                return INTERRUPTED
    click.echo("A second opinion: it makes no level, and no pass of a check.", err=True)
    return max((result.exit_code for result in results), key=lambda code: (code == 1, code))


def _check(asked: Options) -> None:
    others = (asked.run, asked.bundle, asked.config, asked.check_folder, asked.update_folder, asked.list_cells)
    if any(others) or asked.verify is not None or asked.explain is not None:
        raise UsageError("--upstream is a job of its own", fix="Leave out the options of other jobs.")
    if asked.priority or asked.architectures or not asked.models or "-" in asked.models:
        raise UsageError("--upstream needs the model types by name", fix="For example: --model bert --model vit")


def _targets(devices: Sequence[str]) -> tuple[Target, ...]:
    """The targets that were named; `auto`, and nothing, is the best that torch can use here."""
    names = [detect_best_backend() if name == "auto" else name for name in devices or ("auto",)]
    found = tuple(dict.fromkeys(resolve_target(name) for name in names))
    for target in found:
        torch_backend(target)
    return found


def _show(name: str) -> None:
    """The test that runs, on a line of a terminal that is drawn anew."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{one_line(name, longest=terminal_width() - 1)}", nl=False, err=True)


def upstream_text(result: UpstreamResult) -> str:
    """The counts, each failure with what it said, why tests were left out, and where the evidence lies."""
    why: dict[str, int] = {}
    for test in result.tests:
        if str(test.outcome) == "not_run":
            why[test.error_type] = why.get(test.error_type, 0) + 1
    left_out = f" ({', '.join(f'{number} {name}' for name, number in sorted(why.items()))})" if why else ""
    lines = [
        f"{result.model} on {result.target}: {counted(result.counts)}{left_out}",
        f"  {result.library}, {len(result.tests)} tests, torch_device {result.device}",
    ]
    lines += [
        f"  {test.outcome}  {one_line(test.name)}: {one_line(test.message, longest=160)}"
        for test in result.failures[:_MOST_SHOWN]
    ]
    if len(result.failures) > _MOST_SHOWN:
        lines.append(f"  and {len(result.failures) - _MOST_SHOWN} more failures, which the evidence names")
    return "\n".join([*lines, f"  evidence: {result.evidence}"])
