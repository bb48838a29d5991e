"""Which options go together: what makes no sense beside something else is refused before anything is done."""

from __future__ import annotations

from hardware.errors import UsageError

from .options import Options


def refuse_together(asked: Options, *, format_given: bool) -> None:
    """Raises `UsageError` for options that don't go together; `format_given` says that `--format` was."""
    tables = asked.hardware_compatibility or asked.coverage_report
    shown = tables or asked.explain or asked.calibration or asked.dry_run or asked.backlog
    if not (shown or asked.list_devices) and format_given:
        raise UsageError(
            "--format goes with what is printed: --list-devices, --hardware-compatibility, --coverage-report, "
            "--calibration, --backlog, --dry-run or --explain CELL",
            fix="Leave it out.",
        )
    _refuse_two_jobs(asked)
    if asked.targets and not tables:
        raise UsageError(
            "--targets goes with --hardware-compatibility or --coverage-report", fix="A device to run on is --device."
        )
    if asked.baseline and not asked.hardware_compatibility:
        raise UsageError("--baseline goes with --hardware-compatibility", fix="Add --hardware-compatibility.")
    if asked.fail_on and not asked.baseline:
        raise UsageError(
            "--fail-on goes with --baseline", fix="Name the matrix to compare with: --baseline FILE.json"
        )
    if (asked.previous or asked.fail_under is not None) and not asked.coverage_report:
        raise UsageError("--previous and --fail-under go with --coverage-report", fix="Add --coverage-report.")
    if asked.bundle and asked.run:
        raise UsageError("--bundle packs and --run runs", fix="Ask for one of them; a bundle has its own run.py.")
    if asked.resume and not (asked.run or asked.refresh):
        raise UsageError("--resume goes with --run or --refresh", fix="Add one of them.")
    if asked.dry_run and not asked.refresh:
        raise UsageError("--dry-run goes with --refresh", fix="Add --refresh; what --run would do is told by --list.")
    if asked.update_expected and not (asked.config and asked.run):
        raise UsageError("--update-expected goes with --config FILE and --run", fix="Add what is missing.")


def _refuse_two_jobs(asked: Options) -> None:
    """What is printed of everything is printed alone, and of no model or device in particular."""
    jobs = {
        "--hardware-compatibility": asked.hardware_compatibility,
        "--coverage-report": asked.coverage_report,
        "--calibration": asked.calibration,
        "--backlog": bool(asked.backlog),
        "--refresh": asked.refresh,
        "--list-devices": asked.list_devices,
    }
    wanted = [name for name, is_asked in jobs.items() if is_asked]
    if len(wanted) > 1:
        raise UsageError(f"{wanted[0]} and {wanted[1]} are two jobs", fix="Ask for one of them.")
    whole = [name for name in wanted if name in ("--hardware-compatibility", "--calibration", "--backlog")]
    for option, given in (("--model", asked.models), ("--device", asked.devices)):
        if whole and given:
            raise UsageError(
                f"{option} doesn't go with {whole[0]}, which is about all that is known",
                fix="Leave it out; of one cell --explain CELL tells, and --targets chooses columns of the matrix.",
            )
