"""The commands of `python -m hardware` beside `list`: what they take, and their exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .errors import OutputError, UsageError, did_you_mean, echo
from .plain_text import json_text, printable
from .whole_file import write_whole

if TYPE_CHECKING:
    from .detection import HardwareInfo
    from .machine import Machine
    from .recording import Recorder
    from .stress.result import StressRun

_SECONDS = click.FloatRange(min=0)
_PERIOD = click.FloatRange(min=0.05, max=3600)
_FILE = _FOLDER = click.Path(path_type=Path)
_LOAD = click.FloatRange(min=0, min_open=True)
_OUTPUT = click.option(
    "--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal."
)


def deliver(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file, whole or not at all where that is a plain one. Raises `OutputError`."""
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        if output.is_symlink() or (output.exists() and not output.is_file()):  # /dev/stdout, a pipe
            output.write_text(text, encoding="utf-8")
        else:
            write_whole(output, text)
    except OSError as error:
        raise OutputError(
            f"can't write {output}", why=error.strerror or str(error), fix="Name a file in an existing folder."
        ) from error


def as_json(data: Any) -> str:
    """JSON for people and programs, ending in a newline."""
    return json_text(data) + "\n"


def _note(text: str) -> None:
    """Progress and remarks go to standard error, with nothing that a terminal would obey."""
    click.echo(printable(text), err=True)


def _formats(*names: str) -> Callable[..., Callable[..., int]]:
    return click.option("--format", "format_", type=click.Choice(names), default=names[0], show_default=True)


@click.command("monitor", short_help="Show what every device does now, until Ctrl-C.")
@_formats("auto", "live", "json")
@click.option("--interval", type=_PERIOD, default=1.0, show_default=True, metavar="S", help="Seconds between looks.")
@click.option("--duration", type=_SECONDS, metavar="S", help="End after this many seconds.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after this many looks.")
def monitor_command(format_: str, interval: float, duration: float | None, count: int | None) -> int:
    """Show what every accelerator, the processor and memory do now. Ctrl-C ends it.

    \b
    Examples:
      python -m hardware monitor
      python -m hardware monitor --format json --count 10 --interval 0.5
    """
    from .monitor import chosen_format, monitor, samples
    from .sampling import Sampler

    shown = chosen_format(format_, sys.stdout)
    sampler = Sampler()
    monitor(sampler, samples(sampler, interval_s=interval, duration_s=duration, count=count), shown)
    return 0


@click.command("stress", short_help="Load devices and say what they did.")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--duration", type=_LOAD, default=60.0, show_default=True, metavar="S", help="Sustained load.")
@click.option("--warmup", type=_SECONDS, default=30.0, show_default=True, metavar="S", help="Load before it.")
@click.option("--interval", type=_PERIOD, default=1.0, show_default=True, metavar="S", help="Seconds between looks.")
@click.option("--precision", "precisions", multiple=True, metavar="NAME", help="Of products; the first is sustained.")
@click.option(
    "--timeout", type=_LOAD, default=120.0, show_default=True, metavar="S", help="End a load that is silent."
)
@click.option("--keep", is_flag=True, help="Keep the rates: `fit`, `capabilities` and placement go by them.")
@_formats("table", "json")
@_OUTPUT
def stress_command(
    targets: tuple[str, ...],
    duration: float,
    warmup: float,
    interval: float,
    precisions: tuple[str, ...],
    timeout: float,
    keep: bool,
    format_: str,
    output: Path | None,
) -> int:
    """Load devices and say what they did: cpu, ram, cuda, rocm, xpu, mps, simulated, all.

    \b
    Examples:
      python -m hardware stress cpu ram
      python -m hardware stress cuda:0 --duration 300 --keep

    \b
    Accelerators run at once, a process each; cpu and ram before them, one after the other.
    A target without an index means all its devices. What isn't here is skipped with its reason.
    Exit codes: 0 all is right, 1 a wrong result, a failure, or a named target that isn't here.
    """
    from .detection import detect
    from .sampling import Sampler
    from .stress.products import PRECISIONS
    from .stress.result import Ending
    from .stress.run import StressOptions, run_stress
    from .stress.targets import chosen_devices
    from .stress.text import stress_text

    for name in precisions:
        if name not in PRECISIONS:
            hint = did_you_mean(name, PRECISIONS)
            raise UsageError(
                f"{echo(name)} is no precision of a load", fix=f"{hint} Known: {', '.join(PRECISIONS)}.".strip()
            )
    inventory = detect()
    chosen = chosen_devices(targets, inventory)
    options = StressOptions(
        warmup_s=warmup,
        duration_s=duration,
        interval_s=interval,
        silence_s=timeout,
        precisions=tuple(dict.fromkeys(precisions)) or PRECISIONS,
    )
    sampler = Sampler()
    try:
        run = run_stress(chosen, inventory, options, sampler=sampler, note=_note)
    finally:
        sampler.close()
    deliver(as_json(run.to_dict()) if format_ == "json" else stress_text(run), output)
    if keep:
        _keep_rates(run, inventory)
    named = {one.target for one in chosen if one.named}
    bad = [one for one in run.results if one.ending is not Ending.MEASURED]
    return int(any(one.ending is not Ending.SKIPPED or one.target in named for one in bad))


def _keep_rates(run: StressRun, inventory: HardwareInfo) -> None:
    from .placement.devices import known_devices
    from .placement.kept_rates import keep_rates

    kept = keep_rates(run, known_devices(inventory))
    _note(f"{len(kept)} device(s): rates are kept for placement")


@click.command("capabilities", short_help="Print each device's memory and speed, with sources.")
@_formats("table", "json")
@_OUTPUT
def capabilities_command(format_: str, output: Path | None) -> int:
    """Print each device's memory and speed, with the source of every figure or the reason why there is none.

    \b
    Examples:
      python -m hardware capabilities
      python -m hardware capabilities --format json
    """
    from .placement.adapter import HardwareAdapter
    from .placement.text import capabilities_text, device_dict

    devices = HardwareAdapter(enable_hal=True).discover_devices()
    deliver(
        as_json([device_dict(one) for one in devices]) if format_ == "json" else capabilities_text(devices), output
    )
    return 0


@click.command("fit", short_help="Name the best device with at least this much memory and speed.")
@click.option("--memory-gb", type=_SECONDS, default=0.0, show_default=True, help="Free memory, in 2^30 bytes.")
@click.option("--tflops", type=_SECONDS, default=0.0, show_default=True, help="Speed; 0 asks for none.")
@click.option("--precision", default="float32", show_default=True, help="Of the speed.")
@click.option(
    "--vendor", "vendors", multiple=True, help="Preferred vendor, not a filter. Repeatable, most preferred first."
)
@_formats("table", "json")
@_OUTPUT
def fit_command(
    memory_gb: float, tflops: float, precision: str, vendors: tuple[str, ...], format_: str, output: Path | None
) -> int:
    """Name the best device with at least this much memory and speed, and say why each of the others was not chosen.

    \b
    Examples:
      python -m hardware fit --memory-gb 10 --tflops 5
      python -m hardware fit --memory-gb 40 --vendor nvidia --vendor amd

    \b
    Exit codes: 0 one fits, 1 none does.
    """
    from .placement.adapter import HardwareAdapter
    from .placement.text import choice_dict, choice_text

    adapter = HardwareAdapter(enable_hal=True)
    found = adapter.get_optimal_device_hal(memory_gb, tflops, vendors, precision=precision)
    deliver(as_json(choice_dict(found)) if format_ == "json" else choice_text(found), output)
    return int(not found)


@click.command("doctor", short_help="Say what is missing, and the command that fixes it.")
@click.option("--check/--no-check", default=True, show_default=True, help="Compute on each expected target.")
@click.option("--timeout", type=_LOAD, default=120.0, show_default=True, metavar="S", help="For each target.")
@click.option("--record", type=_FOLDER, metavar="DIR", help="Keep what detection read, as a fixture.")
@click.option("--replay", type=_FOLDER, metavar="DIR", help="Diagnose a machine that was recorded.")
@_formats("table", "json")
@_OUTPUT
def doctor_command(
    check: bool, timeout: float, record: Path | None, replay: Path | None, format_: str, output: Path | None
) -> int:
    """Say what is missing, the command that fixes it, and whether what is expected works.

    \b
    Examples:
      python -m hardware doctor
      python -m hardware doctor --no-check --format json

    \b
    A recording holds what detection read, without serial numbers, names and secrets.
    Exit codes: 0 all that is expected works, 1 something that is present can't be used.
    """
    from .detection import detect, targets
    from .doctor.checking import check_targets
    from .doctor.diagnosis import Health, diagnose_machine, diagnosis_text, with_probes
    from .doctor.remedies import kinds_of
    from .machine import LiveMachine

    if record is not None and replay is not None:
        raise UsageError("--record and --replay exclude each other", fix="Record on the machine, replay elsewhere.")
    recorder = _recorder(record) if record is not None else None
    machine = recorder or recorded_machine(replay) or LiveMachine()
    inventory, kinds = detect(machine), kinds_of(machine)
    if recorder is not None and record is not None:
        _keep(recorder, record)
    diagnosis = diagnose_machine(inventory, targets(inventory), kinds)
    if check and replay is None:
        here = [one.name for one in diagnosis.findings if one.kind == "target" and one.health is Health.EXPECTED]
        diagnosis = with_probes(diagnosis, check_targets(here, timeout_s=timeout, note=_note), kinds)
    deliver(as_json(diagnosis.to_dict()) if format_ == "json" else diagnosis_text(diagnosis), output)
    return int(bool(diagnosis.problems))


def _recorder(folder: Path) -> Recorder:
    """A recorder for a folder that holds nothing but, perhaps, an older recording."""
    from .machine import LiveMachine
    from .recording import INDEX, Recorder

    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / INDEX).is_file()):
        raise OutputError(
            f"{folder} holds something else than a recording", fix="Name a new folder, or one with a recording."
        )
    return Recorder(LiveMachine())


def _keep(recorder: Recorder, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = recorder.write(folder)
    except OSError as error:
        raise OutputError(
            f"can't write {folder}", why=error.strerror or str(error), fix="Name a folder that can be made."
        ) from error
    _note(f"recorded: {len(written)} files in {folder}; look at them before you give them away")


def recorded_machine(folder: Path | None) -> Machine | None:
    """The machine that a folder holds a recording of; none where no folder was named. Raises `BrokenInput`."""
    if folder is None:
        return None
    from .recording import ReplayedMachine

    return ReplayedMachine(folder)


@click.command("compare", short_help="Say what differs between two inventories.")
@click.argument("before", type=_FILE, metavar="A.json")
@click.argument("after", type=_FILE, metavar="B.json")
@_formats("table", "json")
@_OUTPUT
def compare_command(before: Path, after: Path, format_: str, output: Path | None) -> int:
    """Say what differs between two inventories, as `list --format json` writes them.

    \b
    Examples:
      python -m hardware compare before.json after.json

    \b
    Exit codes: 0 no evidence expires, 1 something differs that makes evidence expire.
    """
    from .comparison import compare_inventories, comparison_text, load_inventory

    found = compare_inventories(load_inventory(before), load_inventory(after))
    deliver(as_json(found.to_dict()) if format_ == "json" else comparison_text(found), output)
    return int(bool(found.expires))


@click.group("evidence", short_help="Sign a folder of evidence, or check its signature.")
def evidence_commands() -> None:
    """Sign a folder of evidence with an SSH key, or check such a signature.

    \b
    Examples:
      python -m hardware evidence sign hwcompat-out/evidence --key ~/.ssh/id_ed25519
      python -m hardware evidence check hwcompat-out/evidence --signers allowed_signers --identity me@example.org
    """


@evidence_commands.command("sign", short_help="Sign all files of the folder.")
@click.argument("folder", type=_FOLDER)
@click.option(
    "--key", type=_FILE, required=True, metavar="FILE", help="Private SSH key, or a public one of an agent's."
)
def sign_command(folder: Path, key: Path) -> int:
    """Write evidence.sha256 and evidence.sha256.sig into FOLDER."""
    from .evidence.signing import sign_evidence

    click.echo(f"{sign_evidence(folder, key)} file(s) of {printable(str(folder))} signed")
    return 0


@evidence_commands.command("check", short_help="Check the signature and the files.")
@click.argument("folder", type=_FOLDER)
@click.option(
    "--signers", type=_FILE, required=True, metavar="FILE", help="Allowed signers, as ssh-keygen reads them."
)
@click.option("--identity", required=True, help="Who signed, as the file of signers names them.")
def check_command(folder: Path, signers: Path, identity: str) -> int:
    """Check that FOLDER holds just what IDENTITY signed.

    \b
    Exit codes: 0 it does, 1 files were changed, removed or added since, 4 there is no valid signature.
    """
    from .evidence.signing import check_evidence

    found = check_evidence(folder, signers, identity)
    for word, names in (("changed", found.changed), ("missing", found.missing), ("added", found.added)):
        for name in names:
            click.echo(printable(f"{word}  {name}"))
    click.echo(
        printable(f"{found.files} file(s) signed by {found.signer}: {'whole' if found.is_whole else 'not whole'}")
    )
    return int(not found.is_whole)


COMMANDS = (
    capabilities_command,
    compare_command,
    doctor_command,
    evidence_commands,
    fit_command,
    monitor_command,
    stress_command,
)
