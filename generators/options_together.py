"""Which options go together: what makes no sense beside something else is refused before anything is done."""

from __future__ import annotations

from hardware.errors import UsageError, did_you_mean, echo
from hardware.evidence_place import no_writing_there

from .options import Options

SEVERITIES = ("critical", "error", "warning", "info")
"""The grades of findings, from worst to mildest."""


def refuse_together(asked: Options, *, format_given: bool, address_given: bool = False) -> None:
    """Raises `UsageError` for options that don't go together; `format_given` and `address_given`
    say that `--format` and `--address` were, on the command line."""
    tables = asked.hardware_compatibility or asked.coverage_report
    if format_given:
        _refuse_format(asked)
    _refuse_two_jobs(asked)
    if asked.remote and (asked.run or asked.upstream or asked.web_page or (asked.refresh and not asked.dry_run)):
        raise no_writing_there(asked.remote, "python run_test_generation.py …")
    if asked.targets and not tables:
        raise UsageError(
            "--targets goes with --hardware-compatibility or --coverage-report", fix="A device to run on is --device."
        )
    _refuse_beside_a_threshold(asked)
    if (asked.previous or asked.fail_under is not None) and not asked.coverage_report:
        raise UsageError("--previous and --fail-under go with --coverage-report", fix="Add --coverage-report.")
    if asked.bundle and asked.run:
        raise UsageError("--bundle packs and --run runs", fix="Ask for one of them; a bundle has its own run.py.")
    if (asked.pin or asked.forbid or asked.inventory or asked.in_turn) and not asked.place:
        raise UsageError("--pin, --forbid, --inventory and --in-turn go with --place", fix="Add --place.")
    _refuse_beside_a_page(asked)
    _refuse_beside_a_cluster(asked, address_given=address_given)
    _refuse_beside_a_host(asked)
    _refuse_beside_a_mesh(asked)
    if asked.no_redact and not (asked.run or asked.refresh or asked.upstream):
        raise UsageError("--no-redact goes with --run, --refresh or --upstream", fix="Nothing else writes evidence.")
    if asked.resume and not (asked.run or asked.refresh):
        raise UsageError("--resume goes with --run or --refresh", fix="Add one of them.")
    if asked.dry_run and not asked.refresh:
        raise UsageError("--dry-run goes with --refresh", fix="Add --refresh; --list shows what --run would do.")
    if asked.update_expected and not (asked.config and asked.run):
        raise UsageError("--update-expected goes with --config FILE and --run", fix="Add what is missing.")


def _refuse_format(asked: Options) -> None:
    """What is printed has formats of its own; what is done, and told in lines, is told as JSON too."""
    printed = asked.hardware_compatibility or asked.coverage_report or asked.explain or asked.calibration
    printed = printed or asked.dry_run or asked.backlog or asked.place or asked.mesh is not None or asked.list_devices
    if printed:
        return
    made = {
        "--bundle": asked.bundle,
        "--web-page": asked.web_page,
        "--refresh": asked.refresh,
        "--upstream": asked.upstream,
    }
    other = next((name for name, given in made.items() if given), None)
    if other:
        raise UsageError(f"--format doesn't go with {other}", fix="Leave it out.")
    if asked.format_ not in ("table", "text", "json"):
        raise UsageError(
            f"suites are printed as a table or as json, not as {asked.format_}",
            fix="A run leaves its report in every format in the folder of --report-dir."
            if asked.run
            else "Leave --format out, or ask for --format json.",
        )


def _refuse_beside_a_page(asked: Options) -> None:
    """A page is made of one cell and of nothing else, and runs elsewhere."""
    if asked.serve and not asked.web_page:
        raise UsageError("--serve goes with --web-page", fix="Add --web-page page.zip.")
    beside = {
        "--run": asked.run,
        "--bundle": asked.bundle,
        "--config": asked.config,
        "--list": asked.list_cells,
        "--explain": asked.explain is not None,
        "--check": asked.check_folder,
        "--update": asked.update_folder,
        "--upstream": asked.upstream,
    }
    other = next((name for name, given in beside.items() if given), None)
    if asked.web_page and other:
        raise UsageError(
            f"--web-page makes a page, and {other} is something else",
            fix="Ask for one of them; a page runs its checks where somebody opens it.",
        )


def _refuse_beside_a_cluster(asked: Options, *, address_given: bool) -> None:
    """Nodes say themselves which machine they are and how much they do at a time."""
    if address_given and not asked.distributed:
        raise UsageError("--address goes with --distributed", fix="Add --distributed ray.")
    if asked.distributed and not asked.run:
        raise UsageError(
            "--distributed goes with --run", fix="Add --run; to pack suites for a lab there is --bundle."
        )
    beside = {
        "--jobs": (asked.jobs, "how many cells run at a time is what a node's resources say"),
        "--machine": (asked.machine, "each node names its own machine"),
        "--no-redact": (asked.no_redact, "nodes take out names before they send anything"),
    }
    wrong = next(((name, why) for name, (given, why) in beside.items() if given), None)
    if asked.distributed and wrong:
        raise UsageError(f"{wrong[0]} doesn't go with --distributed", why=wrong[1], fix="Leave it out.")


def _refuse_beside_a_host(asked: Options) -> None:
    """Another machine runs suites, or says what it has; all else is done here."""
    if not asked.host:
        if asked.host_checkpoints:
            raise UsageError("--host-checkpoint goes with --host", fix="A folder of this machine is a --model.")
        return
    others = {
        "--distributed": asked.distributed,
        "--refresh": asked.refresh,
        "--upstream": asked.upstream,
        "--hardware-compatibility": asked.hardware_compatibility,
        "--coverage-report": asked.coverage_report,
        "--web-page": asked.web_page,
    }
    other = next((name for name, given in others.items() if given), None)
    if other or not (asked.run or asked.list_devices or asked.list_cells):
        raise UsageError(
            f"--host doesn't go with {other}" if other else "--host goes with --run, --list or --list-devices",
            fix="Ask for that without --host.",
        )
    if asked.no_redact:
        raise UsageError("--no-redact doesn't go with --host", why="evidence is redacted where it is written")
    if asked.pytest_arguments:
        raise UsageError(
            "what follows -- is for pytest here, and doesn't go with --host",
            fix="--select and --skip choose cells; --timeout and --jobs are passed.",
        )


def _refuse_beside_a_mesh(asked: Options) -> None:
    """A mesh is planned and checked alone: a split model is no suite's model, and gives no evidence."""
    beside = {
        "--run": asked.run,
        "--bundle": asked.bundle,
        "--web-page": asked.web_page,
        "--config": asked.config,
        "--list": asked.list_cells,
        "--explain": asked.explain is not None,
        "--check": asked.check_folder,
        "--update": asked.update_folder,
        "--verify": asked.verify is not None,
        "--upstream": asked.upstream,
        "--priority": asked.priority,
        "--architectures": asked.architectures,
        "--tasks": asked.tasks,
        "--dims": asked.dims != "tiny",
        "--allow-tiny": asked.allow_tiny,
    }
    other = next((name for name, given in beside.items() if given), None)
    if asked.mesh is not None and other:
        raise UsageError(
            f"--mesh is a job of its own, and {other} belongs to another",
            fix="Ask for one of them; --mesh goes with --model, --device, --precision and --timeout.",
        )


def _refuse_beside_a_threshold(asked: Options) -> None:
    """`--baseline` and `--fail-on` go with a matrix, or with a run whose findings they judge."""
    judged = asked.run and not (asked.hardware_compatibility or asked.refresh or asked.upstream)
    if asked.baseline and not (asked.hardware_compatibility or judged):
        raise UsageError(
            "--baseline goes with --hardware-compatibility or --run",
            fix="Add --hardware-compatibility to compare matrices, or --run to judge a run by an earlier report.",
        )
    if not judged:
        if asked.fail_on and not asked.baseline:
            raise UsageError(
                "--fail-on goes with --run, or with --baseline",
                fix="Add --run, or name the matrix to compare with: --baseline FILE.json",
            )
        return
    if (asked.fail_on or asked.baseline) and asked.config:
        raise UsageError(
            "a project file says itself what breaks the build",
            fix="Leave out --fail-on and --baseline, or --config: failures that are known are its accepted failures.",
        )
    wrong = next((word for word in asked.fail_on if word not in SEVERITIES), None)
    if wrong or len(asked.fail_on) > 1:
        named = echo(wrong or ",".join(asked.fail_on))
        raise UsageError(
            f"{named} is not a severity" if wrong else f"{named} are several severities",
            fix=did_you_mean(wrong or "", SEVERITIES)
            or f"With --run --fail-on takes one of {', '.join(SEVERITIES)}: the mildest that counts.",
        )


def _refuse_two_jobs(asked: Options) -> None:
    """What is printed of everything is printed alone, and of no device in particular; of models only the matrix."""
    jobs = {
        "--hardware-compatibility": asked.hardware_compatibility,
        "--coverage-report": asked.coverage_report,
        "--calibration": asked.calibration,
        "--backlog": bool(asked.backlog),
        "--refresh": asked.refresh,
        "--mesh": asked.mesh is not None,
        "--list-devices": asked.list_devices,
        "--place": asked.place,
        "--run": asked.run and asked.place,
    }
    wanted = [name for name, is_asked in jobs.items() if is_asked]
    if len(wanted) > 1:
        raise UsageError(f"{wanted[0]} and {wanted[1]} are two jobs", fix="Ask for one of them.")
    whole = [name for name in wanted if name in ("--hardware-compatibility", "--calibration", "--backlog")]
    of_rows = asked.models and not asked.hardware_compatibility
    for option, given in (("--model", of_rows), ("--device", asked.devices)):
        if whole and given:
            raise UsageError(
                f"{option} doesn't go with {whole[0]}, which is about all that is known",
                fix="Leave it out. Use --explain CELL for one cell; filter the matrix with --model and --targets.",
            )
