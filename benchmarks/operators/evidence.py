"""When and with which versions runs were made, as a section of a table says it."""

from __future__ import annotations

from collections.abc import Sequence

from hardware.evidence.record import RunLine


def dates_and_versions(runs: Sequence[RunLine], packages: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The days of some runs, and the versions of packages: all that these runs had."""
    days = sorted({run.started_at[:10] for run in runs})
    dates = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    found = {name: sorted({run.versions[name] for run in runs if name in run.versions}) for name in packages}
    return dates, {name: " and ".join(one.partition("+")[0] for one in had) for name, had in found.items() if had}
