"""Commands about devices and signed evidence: doctor, compare, and evidence sign and check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from .errors import OutputError, UsageError
from .files import write_whole
from .plain_text import json_text, printable

if TYPE_CHECKING:
    from .recording import MachineRecorder

SECONDS = click.FloatRange(min=0)
PERIOD = click.FloatRange(min=0.05, max=3600)
_FILE = _FOLDER = click.Path(path_type=Path)
LOAD = click.FloatRange(min=0, min_open=True)
OUTPUT = click.option("--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal.")


def deliver(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file (a regular one as a whole). Raises `OutputError` on failure."""
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
    """Return readable JSON that ends in a newline."""
    return json_text(data) + "\n"


def say(text: str) -> None:
    """Print progress and notes on standard error, without control sequences."""
    click.echo(printable(text), err=True)


def formats(*names: str) -> Callable[..., Callable[..., int]]:
    """Return the option `--format`, whose default is the first name."""
    return click.option("--format", "format_", type=click.Choice(names), default=names[0], show_default=True)


@click.command("doctor", short_help="Check devices and targets, and show how to fix problems.")
@click.option("--check/--no-check", default=True, show_default=True, help="Run a smoke test on each target.")
@click.option("--timeout", type=LOAD, default=120.0, show_default=True, metavar="S", help="Limit of a smoke test.")
@click.option("--record", type=_FOLDER, metavar="DIR", help="Record what detection read, for --replay.")
@click.option("--replay", type=_FOLDER, metavar="DIR", help="Check a recorded machine, without smoke tests.")
@formats("table", "json")
@OUTPUT
def doctor_command(
    check: bool, timeout: float, record: Path | None, replay: Path | None, format_: str, output: Path | None
) -> int:
    """Check devices, drivers and libraries, run a smoke test on each target, and show the commands that fix problems.

    \b
    Examples:
      hwcompat doctor
      hwcompat doctor --no-check --format json

    \b
    A recording contains no serial numbers, names or secrets.
    Exit codes: 0 no problems, 1 a device can't be used or a smoke test failed.
    """
    from .detection import detect, probe_apart
    from .doctor.hardware_diagnosis import diagnose_machine, diagnosis_text, kinds_of, with_probes
    from .expected_targets import targets
    from .machine import LiveMachine
    from .recording import ReplayedMachine

    if record is not None and replay is not None:
        raise UsageError("--record and --replay exclude each other", fix="Use one of them.")
    recorder = _recorder(record) if record is not None else None
    machine = recorder or (ReplayedMachine(replay) if replay else LiveMachine())
    inventory, kinds = detect(machine), kinds_of(machine)
    if recorder is not None and record is not None:
        _keep(recorder, record)
    diagnosis = diagnose_machine(inventory, targets(inventory), kinds)
    if check and replay is None:
        probes = {}
        for name in diagnosis.untested:
            say(f"{name}: running the smoke test …")
            probes[name] = probe_apart(name, timeout_s=timeout)
        diagnosis = with_probes(diagnosis, probes, kinds)
    deliver(as_json(diagnosis.to_dict()) if format_ == "json" else diagnosis_text(diagnosis), output)
    return int(bool(diagnosis.problems))


def _recorder(folder: Path) -> MachineRecorder:
    """Return a recorder for a folder that is empty, new, or holds an older recording."""
    from .machine import LiveMachine
    from .recording import INDEX, MachineRecorder

    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / INDEX).is_file()):
        raise OutputError(
            f"{folder} isn't empty and isn't a recording", fix="Name a new folder, or one with a recording."
        )
    return MachineRecorder(LiveMachine())


def _keep(recorder: MachineRecorder, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = recorder.write(folder)
    except OSError as error:
        raise OutputError(
            f"can't write {folder}", why=error.strerror or str(error), fix="Name a folder that you may write to."
        ) from error
    say(f"recorded {len(written)} files in {folder}; check them for private data before you share them")


@click.command("compare", short_help="Compare two inventories.")
@click.argument("before", type=_FILE, metavar="A.json")
@click.argument("after", type=_FILE, metavar="B.json")
@formats("table", "json")
@OUTPUT
def compare_command(before: Path, after: Path, format_: str, output: Path | None) -> int:
    """Compare two inventories from `hwcompat devices list --format json`, and show which evidence expires.

    \b
    Examples:
      hwcompat devices compare before.json after.json

    \b
    Exit codes: 0 no evidence expires, 1 evidence expires because of a difference.
    """
    from .inventory_diff import compare_inventories, comparison_text
    from .inventory_file import load_inventory

    found = compare_inventories(load_inventory(before), load_inventory(after))
    deliver(as_json(found.to_dict()) if format_ == "json" else comparison_text(found), output)
    return int(bool(found.expires))


@click.command("sign", short_help="Sign all files in a folder.")
@click.argument("folder", type=_FOLDER)
@click.option(
    "--key", type=_FILE, required=True, metavar="FILE", help="Private SSH key, or the public key of one in ssh-agent."
)
def sign_command(folder: Path, key: Path) -> int:
    """Sign all files in FOLDER with an SSH key: write evidence.sha256 and evidence.sha256.sig into it.

    \b
    Examples:
      hwcompat evidence sign hwcompat-out/evidence --key ~/.ssh/id_ed25519
    """
    from .evidence.signature import sign_evidence

    click.echo(f"{sign_evidence(folder, key)} file(s) of {printable(str(folder))} signed")
    return 0


@click.command("check", short_help="Check the signature and the files.")
@click.argument("folder", type=_FOLDER)
@click.option(
    "--signers",
    type=_FILE,
    required=True,
    metavar="FILE",
    help="File of allowed signers, in the format of ssh-keygen.",
)
@click.option("--identity", required=True, help="Signer, as named in the file of signers.")
def check_command(folder: Path, signers: Path, identity: str) -> int:
    """Check that the files in FOLDER are those that IDENTITY signed.

    \b
    Examples:
      hwcompat evidence check hwcompat-out/evidence --signers allowed_signers --identity me@example.org

    \b
    Exit codes: 0 unchanged, 1 files were changed, removed or added, 4 no valid signature.
    """
    from .evidence.signature import check_evidence

    found = check_evidence(folder, signers, identity)
    for word, names in (("changed", found.changed), ("missing", found.missing), ("added", found.added)):
        for name in names:
            click.echo(printable(f"{word}  {name}"))
    click.echo(
        printable(f"{found.files} file(s) signed by {found.signer}: {'unchanged' if found.is_whole else 'changed'}")
    )
    return int(not found.is_whole)
