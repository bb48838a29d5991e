"""Results of transformers' own tests beside our verdicts: findings of disagreement, and rows for reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwcompat.generators.compatibility.imported import ReferenceTests, disagreements
from hwcompat.generators.compatibility.verdict import Verdict
from hwcompat.hardware.evidence.record import Outcome
from hwcompat.hardware.plain_text import one_line

from .advice import remedies
from .diagnose import error_types
from .finding import Confidence, Finding
from .reason_text import reason_text
from .text import escaped_table, listed

ERROR_TYPE = "second_opinion_disagrees"
COMPONENT = "second_opinion"

EXPLANATION = "Tests of other projects on the same device. They don't give a level and don't count as checks."
_NAMED = 5
HEADINGS = ("model", "target", "tests of", "passed", "failed", "skipped", "not run", "note")


def reference_test_findings(verdicts: Sequence[Verdict], opinions: Sequence[ReferenceTests]) -> list[Finding]:
    """Return a warning for each model and target that we measured as `high` and whose transformers tests fail."""
    return [_finding(one, cells) for one, cells in disagreements(verdicts, opinions)]


def _finding(one: ReferenceTests, cells: Sequence[str]) -> Finding:
    kind = error_types()[ERROR_TYPE]
    names = [line.check_name for line in one.failures]
    first = one_line(one.failures[0].error_message, longest=200)
    shown = f"{listed(names, _NAMED)}. The first: {first}"
    message = f"{kind.says} ({reason_text(one.reason)}; {one.library}): {shown}"
    return Finding(
        hardware_type=one.target,
        error_type=kind.name,
        severity=kind.severity,
        confidence=Confidence.LOW,
        message=one_line(message, longest=900),
        component=COMPONENT,
        timestamp=min(line.started_at for line in one.failures),
        model_name=one.model,
        remedies=remedies(kind.name, one.target),
        traceback=one.failures[0].traceback,
        cells=tuple(cells),
        checks=tuple(names),
        evidence_ids=tuple(line.evidence_id for line in one.failures),
    )


def _note(one: ReferenceTests) -> str:
    why = ", ".join(f"{number} {name}" for name, number in sorted(one.not_asked.items()))
    moved = f"with other versions: {', '.join(one.moved)}" if one.moved else ""
    return "; ".join(filter(None, [why, moved]))


def reference_test_rows(opinions: Sequence[ReferenceTests]) -> list[tuple[str, ...]]:
    """Return a row of texts for each result, with the columns of `HEADINGS`."""
    return [
        (
            one.model,
            one.target,
            one.library,
            str(one.counts.get(Outcome.PASSED, 0)),
            str(len(one.failures)),
            str(one.counts.get(Outcome.SKIPPED, 0)),
            str(one.counts.get(Outcome.NOT_RUN, 0)),
            _note(one) or "-",
        )
        for one in opinions
    ]


def reference_test_markdown(opinions: Sequence[ReferenceTests]) -> str:
    """Return a section with one row for each result; empty if there is none."""
    if not opinions:
        return ""
    return f"## Reference tests\n\n{EXPLANATION}\n\n" + escaped_table(HEADINGS, reference_test_rows(opinions))


def reference_test_object(one: ReferenceTests) -> dict[str, Any]:
    """Return plain JSON values."""
    return {
        "origin": str(one.origin),
        "library": one.library,
        "model": one.model,
        "target": one.target,
        "machine": one.machine,
        "outcomes": {str(outcome): one.counts[outcome] for outcome in Outcome if one.counts.get(outcome)},
        "failed": [{"test": line.check_name, "message": line.error_message} for line in one.failures],
        "not_run": dict(sorted(one.not_asked.items())),
        "expired": list(one.moved),
        "run_ids": sorted({line.run_id for line in one.lines}),
    }
