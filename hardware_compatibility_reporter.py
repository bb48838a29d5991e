"""`python hardware_compatibility_reporter.py`: what works where, what doesn't, why, and what to change."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from hardware.command_line import run_command_line
from hardware.command_names import as_runnable, program_of
from hardware.evidence.address import Address
from hardware.evidence.evidence_location import fetch_remote
from hardware.files import DEFAULT_EVIDENCE
from hardware.plugins import plugins
from reports.report_request import Request, refuse_together, request_of, with_options

_HELP = """Say what works where, from rules and evidence. Actions combine.

\b
Examples:
  python hardware_compatibility_reporter.py --collect-all --matrix
  python hardware_compatibility_reporter.py --check-model bert --device cpu
  python hardware_compatibility_reporter.py --compare previous latest
  python hardware_compatibility_reporter.py --diagnose error.log
  python hardware_compatibility_reporter.py --merge evidence --collect-all

\b
Exit codes: 0 clean, 1 findings, 2 interrupted, 3 internal error, 4 usage, 5 nothing matched.
--try-remedies: 0 every cell was turned, 1 not every one, 5 nothing applies.
"""


@click.command(help=as_runnable(_HELP), context_settings={"help_option_names": ["-h", "--help"]})
@with_options
def cli(**options: object) -> int:
    """Parse and call; see `help`."""
    return run(request_of(options))


def run(request: Request) -> int:
    """Collect the requested parts, print or write them, and return the exit code."""
    refuse_together(request)
    if request.remote is not None:
        fetch_remote(request.remote)
    for source in request.merged:
        from reports.evidence_command import merge_folder

        merge_folder(source, request.evidence or DEFAULT_EVIDENCE)
    if request.compact:
        from reports.evidence_command import compact_folder

        compact_folder(request.evidence or DEFAULT_EVIDENCE)
    if isinstance(request.published, Address):
        from reports.evidence_command import publish_folder

        publish_folder(request.evidence or DEFAULT_EVIDENCE, request.published)
    if request.stress is not None:
        return plugins().job("stress")(request, request.stress)
    if request.compare is not None:
        from reports.compare_command import compare

        return compare(request)
    if request.diagnosed is not None:
        from reports.diagnose_command import diagnose_pasted

        return diagnose_pasted(request, request.diagnosed)
    if request.localized is not None:
        return plugins().job("localize")(request, request.localized)
    if request.repro is not None:
        return plugins().job("repro")(request, request.repro)
    if request.remedies:
        return plugins().job("remedies")(request)
    from reports.collect_command import collect

    return collect(request)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and convert every error to one line and an exit code."""
    own = list(sys.argv[1:] if arguments is None else arguments)
    return run_command_line(cli, own, program=program_of("hardware_compatibility_reporter"))


if __name__ == "__main__":
    sys.exit(main())
