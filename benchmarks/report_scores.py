"""Print docs/measured/reports.md: how often the diagnosis of public reports is right.

`python -m benchmarks.report_scores --originals FOLDER > docs/measured/reports.md`, then once more with `--examples`
and `>>`. `test/fixtures/reports` explains reports and labels. The test half is scored once for each version: the
looks are counted there. Of it only counts and drawn examples are printed.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import click

from benchmarks.diagnosis import last_class, names_operators
from benchmarks.report_model import Report, reports
from hardware.plain_text import printable
from reports.diagnose_text import diagnose_text, pattern_types
from reports.finding import Finding
from reports.report_reading import NO_FAILURE, fix_kinds, read_report
from reports.report_words import report_model

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
_KINDS = ("message", "prose", "negative")
_BANDS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.01)
_MOST_CONFUSED = 15
_EXAMPLES, _SEED, _LONGEST_EXAMPLE = 20, 38, 160


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What `hwcompat diagnose` says of a report: the error type, the second likeliest, how likely and how sure it is,
    severity, operator, and the three likeliest kinds of fix."""

    error_type: str
    second: str
    probability: float
    confidence: str
    severity: str
    operator: str
    fix_kinds: tuple[str, ...]


def answer(text: str) -> Answer:
    """Return the answer to a text."""
    found = diagnose_text(text, source="report", timestamp="2026-01-01T00:00:00+00:00")
    assert found.reading is not None
    reading = found.reading
    first: Finding | None = found.findings[0] if found.findings else None
    error_type = first.error_type if first else NO_FAILURE
    others = [name for name, _ in reading.error_types.labels if name != error_type]
    share = dict(reading.error_types.labels).get(error_type, 0.0)
    vector = report_model().vector(text, pattern_types(text))
    kinds = [name for name, _ in report_model().ranked("fix_kind", vector).labels if name in fix_kinds()]
    return Answer(
        error_type=error_type,
        second=others[0],
        probability=share,
        confidence=str(first.confidence if first else reading.confidence),
        severity=str(first.severity) if first else "none",
        operator=first.cause if first else "",
        fix_kinds=tuple(kinds[:3]),
    )


Rule = Callable[[Report], str]


def baselines(seen: Sequence[Report]) -> dict[str, Rule]:
    """Return rules that are fitted to the training half: the most frequent type, the exception class, and the type of
    the nearest report."""
    frequent = Counter(one["error_type"] for one in seen).most_common(1)[0][0]
    by_class: dict[str, Counter[str]] = {}
    for one in seen:
        by_class.setdefault(last_class(one["text"]), Counter())[one["error_type"]] += 1
    learned = {name: counted.most_common(1)[0][0] for name, counted in by_class.items()}

    def nearest(one: Report) -> str:
        similar = read_report(one["text"], pattern_types(one["text"])).similar
        return similar[0].error_type if similar else frequent

    return {
        "always the most frequent type": lambda one: frequent,
        "the exception class alone": lambda one: learned.get(last_class(one["text"]), frequent),
        "the nearest known report": nearest,
    }


def by_patterns(one: Report) -> str:
    """Return the first error type that a pattern finds."""
    return next(iter(pattern_types(one["text"])), NO_FAILURE)


def by_words(one: Report) -> str:
    """Return the likeliest error type by the words alone, without what patterns found."""
    return read_report(one["text"]).error_types.first


def _share(right: int, number: int) -> str:
    return f"{right} of {number} ({100 * right / number:.1f} %)" if number else "none"


def _counted(rows: Sequence[tuple[Report, Answer]], right: Callable[[Report, Answer], bool]) -> str:
    return _share(sum(right(*row) for row in rows), len(rows))


def totals(rows: Sequence[tuple[Report, Answer]], seen: Sequence[Report]) -> Iterator[str]:
    """Yield the table of what is right."""
    failures = [row for row in rows if row[0]["kind"] != "negative"]
    operators = [row for row in failures if row[0]["operator"]]
    high = [row for row in rows if row[1].confidence == "high"]
    kinds = {kind: [row for row in rows if row[0]["kind"] == kind] for kind in _KINDS}
    questions: tuple[tuple[str, Sequence[tuple[Report, Answer]], Callable[[Report, Answer], bool]], ...] = (
        ("error type", rows, _right),
        ("one of the two likeliest error types", rows, lambda one, a: one["error_type"] in (a.error_type, a.second)),
        ("error type, by either reader's label", rows, lambda one, a: a.error_type in _labels(one)),
        *((f"error type of {kind} reports", these, _right) for kind, these in kinds.items()),
        ("failures called no failure", failures, lambda one, a: a.error_type == NO_FAILURE),
        ("severity", rows, lambda one, a: a.severity == one["severity"]),
        ("operator, where one is labeled", operators, lambda one, a: names_operators(a.operator, one["operator"])),
        ("kind of fix, one of the three likeliest", failures, lambda one, a: one["fix_kind"] in a.fix_kinds),
        ("answers with high confidence", high, _right),
    )
    yield "| | right |\n|---|---|"
    for name, these, right in questions:
        yield f"| {name} | {_counted(these, right)} |"
    yield f"| share of answers with high confidence | {_share(len(high), len(rows))} |"
    rules = {**baselines(seen), "layer: patterns alone": by_patterns, "layer: words alone": by_words}
    for name, rule in rules.items():
        right_ones = sum(rule(one) == one["error_type"] for one, _ in rows)
        yield f"| {name}: error type | {_share(right_ones, len(rows))} |"


def _right(one: Report, said: Answer) -> bool:
    return bool(said.error_type == one["error_type"])


def _labels(one: Report) -> set[str]:
    return {one["error_type"], one.get("second", {}).get("error_type", one["error_type"])}


def reliability(rows: Sequence[tuple[Report, Answer]]) -> Iterator[str]:
    """Yield by band of probability how many answers are right."""
    yield "\n## Are probabilities right\n\n| stated probability | answers | right |\n|---|---|---|"
    for low, high in itertools.pairwise(_BANDS):
        these = [row for row in rows if low <= row[1].probability < high]
        yield f"| {low:.0%} to {min(high, 1):.0%} | {len(these)} | {_counted(these, _right)} |"


def confusion(rows: Sequence[tuple[Report, Answer]]) -> Iterator[str]:
    """Yield the pairs that are most often confused."""
    counted = Counter((one["error_type"], said.error_type) for one, said in rows if not _right(one, said))
    yield "\n## Most frequent confusions\n\n| label | answer | reports |\n|---|---|---|"
    for (label, said), number in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST_CONFUSED]:
        yield f"| {label} | {said} | {number} |"


def examples(rows: Sequence[tuple[Report, Answer]]) -> Iterator[str]:
    """Yield reports with their links: the beginning of the restated text, the label and the answer."""
    yield "\n## Examples\n"
    yield f"{len(rows)} reports, drawn by a seed from the test half; {_tally(rows)} are right."
    yield "The texts are the restated ones.\n"
    yield "| report | text | label | answer | stated probability |\n|---|---|---|---|---|"
    for one, said in rows:
        text = shorten(printable(one["text"]).replace("|", "\\|"), _LONGEST_EXAMPLE, placeholder=" …")
        mark = "" if _right(one, said) else " (wrong)"
        link = f"[{one['repository']}]({one['url']})"
        yield f"| {link} | {text} | {one['error_type']} | {said.error_type}{mark} | {said.probability:.0%} |"


def _tally(rows: Sequence[tuple[Report, Answer]]) -> int:
    return sum(_right(*row) for row in rows)


@click.command()
@click.option("--originals", type=click.Path(exists=True, path_type=Path), help="Folder of original texts, by id.")
@click.option("--examples", "only_examples", is_flag=True, help="Print only drawn examples.")
def main(originals: Path | None, only_examples: bool) -> None:
    """Print the page."""
    if only_examples:
        drawn = random.Random(_SEED).sample(list(reports("test")), _EXAMPLES)
        click.echo("\n".join(examples([(one, answer(one["text"])) for one in drawn])))
        return
    rows = []
    replaced = 0
    for one in reports("test"):
        file = originals / f"{one['id']}.txt" if originals else None
        kept: dict[str, Any] = dict(one)
        if file is not None and file.is_file():
            kept["text"] = file.read_text(encoding="utf-8")
            replaced += 1
        rows.append((kept, answer(kept["text"])))
    right = _tally(rows)
    click.echo(_HEAD.format(right=right, number=len(rows), originals=replaced))
    for part in (totals(rows, reports("train")), reliability(rows), confusion(rows)):
        click.echo("\n".join(part))


if __name__ == "__main__":
    main()
