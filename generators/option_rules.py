"""Reject options that don't go together before anything is done."""

from __future__ import annotations

from collections.abc import Sequence

from hardware.errors import UsageError, did_you_mean, echo
from hardware.evidence.evidence_location import read_only_location

from .options import Options

SEVERITIES = ("critical", "error", "warning", "info")
"""The grades of findings, from worst to mildest."""

_NEEDS = (
    (
        ("--targets",),
        ("--hardware-compatibility", "--coverage-report"),
        "A device to run on is --device.",
    ),
    (("--previous", "--fail-under"), ("--coverage-report",), "Add --coverage-report."),
    (("--pin", "--forbid", "--inventory", "--in-turn"), ("--place",), "Add --place."),
    (("--serve",), ("--web-page",), "Add --web-page page.zip."),
    (("--distributed",), ("--run",), "Add --run; to pack suites for a lab there is --bundle."),
    (("--host-checkpoint",), ("--host",), "A folder of this machine is a --model."),
    (("--no-redact",), ("--run", "--refresh", "--upstream"), "Nothing else writes evidence."),
    (("--resume",), ("--run", "--refresh"), "Add one of them."),
    (("--dry-run",), ("--refresh",), "Add --refresh; --list shows what --run would do."),
)
"""Options that require one of some others, and what to do."""

_SUITES = ("--run", "--bundle", "--config", "--list", "--explain", "--check", "--update", "--upstream")
_ALONE = (
    (
        "--web-page",
        _SUITES,
        "makes a page, and {} is something else",
        "Ask for one of them; a page runs its checks where somebody opens it.",
    ),
    (
        "--mesh",
        (*_SUITES, "--web-page", "--verify", "--priority", "--architectures", "--tasks", "--dims", "--allow-tiny"),
        "is a job of its own, and {} belongs to another",
        "Ask for one of them; --mesh goes with --model, --device, --precision and --timeout.",
    ),
)
"""Options that exclude all others: a page is made of one cell and runs elsewhere; a split model isn't the model of
a suite and gives no evidence."""

_PRINTED = (
    *("--hardware-compatibility", "--coverage-report", "--calibration", "--dry-run", "--backlog", "--place"),
    *("--mesh", "--list-devices"),
)
_JOBS = (
    *("--hardware-compatibility", "--coverage-report", "--calibration", "--backlog", "--refresh", "--mesh"),
    *("--list-devices", "--place"),
)
_OF_NODES = {
    "--jobs": "how many cells run at a time is what a node's resources say",
    "--machine": "each node names its own machine",
    "--no-redact": "nodes take out names before they send anything",
}
"""Settings that the nodes of a cluster state themselves."""


def refuse_together(asked: Options, *, format_given: bool, address_given: bool = False) -> None:
    """Raise `UsageError` for options that don't go together; `format_given` and `address_given` say whether
    `--format` and `--address` were on the command line."""
    if format_given:
        _refuse_format(asked)
    _refuse_two_jobs(asked)
    if asked.remote and (asked.run or asked.upstream or asked.web_page or (asked.refresh and not asked.dry_run)):
        raise read_only_location(asked.remote, "python run_test_generation.py …")
    _refuse_beside_a_threshold(asked)
    for options, needed, fix in _NEEDS:
        if asked.first_given(*options) and not asked.first_given(*needed):
            verb = "goes" if len(options) == 1 else "go"
            raise UsageError(f"{_in_words(options, 'and')} {verb} with {_in_words(needed, 'or')}", fix=fix)
    if asked.bundle and asked.run:
        raise UsageError("--bundle packs and --run runs", fix="Ask for one of them; a bundle has its own run.py.")
    for option, others, message, fix in _ALONE:
        if asked.first_given(option) and (other := asked.first_given(*others)):
            raise UsageError(f"{option} {message.format(other)}", fix=fix)
    if address_given and not asked.distributed:
        raise UsageError("--address goes with --distributed", fix="Add --distributed ray.")
    if asked.distributed and (other := asked.first_given(*_OF_NODES)):
        raise UsageError(f"{other} doesn't go with --distributed", why=_OF_NODES[other], fix="Leave it out.")
    if asked.host:
        _refuse_beside_a_host(asked)
    if asked.update_expected and not (asked.config and asked.run):
        raise UsageError("--update-expected goes with --config FILE and --run", fix="Add what is missing.")


def _in_words(words: Sequence[str], last: str) -> str:
    """Return `one, two and three`."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _refuse_format(asked: Options) -> None:
    """Check the format: a printed report has formats of its own; a job has lines and JSON."""
    if asked.explain or asked.first_given(*_PRINTED):
        return
    if other := asked.first_given("--bundle", "--web-page", "--refresh", "--upstream"):
        raise UsageError(f"--format doesn't go with {other}", fix="Leave it out.")
    if asked.format_ not in ("table", "text", "json"):
        raise UsageError(
            f"suites are printed as a table or as json, not as {asked.format_}",
            fix="A run leaves its report in every format in the folder of --report-dir."
            if asked.run
            else "Leave --format out, or ask for --format json.",
        )


def _refuse_beside_a_host(asked: Options) -> None:
    """Reject options that need this machine: another machine only runs suites, or reports what it has."""
    elsewhere = (
        "--distributed",
        "--refresh",
        "--upstream",
        "--hardware-compatibility",
        "--coverage-report",
        "--web-page",
    )
    other = asked.first_given(*elsewhere)
    if other or not asked.first_given("--run", "--list-devices", "--list"):
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


def _refuse_beside_a_threshold(asked: Options) -> None:
    """Require a matrix, or a run with findings, for `--baseline` and `--fail-on`."""
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
    """Reject two reports at once, and a device or (except for the matrix) models beside a report of everything."""
    wanted = [one for one in _JOBS if asked.first_given(one)]
    if asked.run and asked.place:
        wanted.append("--run")
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
