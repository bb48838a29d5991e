"""Which cells lost results with files that were changed or are missing; after `reduce_checks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .record import latest_moment

if TYPE_CHECKING:
    from .table import EvidenceTable

_BEGAN = "(SELECT run_id, min(started_at) AS began FROM runs GROUP BY run_id)"

_DAMAGED = f"""
WITH given AS (
    SELECT unnest($runs::VARCHAR[]) AS run_id, unnest($until::VARCHAR[]) AS until,
        unnest($cells::VARCHAR[][]) AS cells, unnest($whole::BOOLEAN[]) AS whole),
named AS (
    SELECT run_id, until, unnest(cells) AS cell_id FROM given UNION
    SELECT run_id, until, cell_id FROM given JOIN plans USING (run_id) WHERE whole UNION
    SELECT run_id, until, cell_id FROM given JOIN suites USING (run_id) WHERE whole),
lost AS (
    SELECT run_id, cell_id, max(greatest(until, coalesce(began, ''))) AS until
    FROM named LEFT JOIN {_BEGAN} USING (run_id) GROUP BY run_id, cell_id),
measured AS (
    SELECT cell_id, first, machine FROM suites ANTI JOIN lost USING (run_id, cell_id)
    WHERE list_has_all(names, checks) AND NOT is_silent AND last <= $latest)
SELECT cell_id, list(run_id ORDER BY run_id) FROM lost LEFT JOIN machines USING (run_id)
WHERE NOT EXISTS (SELECT 1 FROM measured WHERE measured.cell_id = lost.cell_id AND first > until
    AND (machines.machine IS NULL OR measured.machine = machines.machine))
GROUP BY cell_id ORDER BY cell_id
"""


def damaged_cells(table: EvidenceTable) -> dict[str, tuple[str, ...]]:
    """Return the cells of which results are lost, each with the runs that lost them.

    A cell that a later run of the same machine measured whole, as it had planned it, lost nothing that counts.
    """
    given = table.damaged
    if not given:
        return {}
    values = {
        "runs": [one.run_id for one in given],
        "until": [one.until for one in given],
        "cells": [sorted(one.cells) for one in given],
        "whole": [one.whole for one in given],
        "latest": latest_moment(),
    }
    return {cell: tuple(runs) for cell, runs in table.connection.execute(_DAMAGED, values).fetchall()}
