"""Print docs/measured/diagnosis.md: how often the diagnosis agrees with human labels of failures, and what it merges.

`python -m benchmarks.diagnosis > docs/measured/diagnosis.md`. `test/fixtures/failures` has the failures and
explains their labels. Only counts are printed of the held-out half, which no pattern may be written from.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import click

from benchmarks.failures import HELD_OUT, SEEN, Failure, read
from reports.diagnose import diagnose
from reports.diagnose_text import diagnose_text
from reports.finding import Finding

SAME = {"crashed": "crash"}
"""Error types whose recorded name differs from the labels'; stored evidence can't be renamed."""

NOTHING = "(nothing)"

_WORDS = 160

_CLASS = re.compile(
    r"^(?:[\w-]+: )?(?:\w+\.)*(\w*(?:Error|Exception|Expired|Warning|Fail|NotImplemented|Invalid\w*))\b"
)

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The diagnosis of a failure. For a check line, `finding` is the number of the finding that contains it."""

    error_type: str
    severity: str
    operator: str
    finding: str = ""


Rule = Callable[[Failure], str]


def answers(failures: Sequence[Failure]) -> dict[str, Answer]:
    """Diagnose the failures; return the answers by id."""
    lines = [one.line for one in failures if one.line is not None]
    # Numbers, because the id of a finding identifies its problem: findings of two runs may share it.
    found = enumerate(diagnose(lines), start=1)
    holding = {evidence: (str(number), one) for number, one in found for evidence in one.evidence_ids}
    given = {}
    for one in failures:
        if one.line is None:
            given[one.id] = _of_text(one.text)
        elif held := holding.get(one.line.evidence_id):
            given[one.id] = _answer(held[1], held[0])
        else:
            given[one.id] = Answer(error_type=NOTHING, severity=NOTHING, operator="")
    return given


def _of_text(text: str) -> Answer:
    """Return the worst finding that `--diagnose` reports for a log."""
    found = diagnose_text(text, source="log", timestamp="2026-01-01T00:00:00+00:00").findings
    return _answer(found[0], "") if found else Answer(error_type=NOTHING, severity=NOTHING, operator="")


def _answer(finding: Finding, number: str) -> Answer:
    return Answer(error_type=finding.error_type, severity=finding.severity, operator=finding.cause, finding=number)


def right_type(one: Failure, answer: Answer) -> bool:
    """Whether the answer has the label's error type."""
    return SAME.get(answer.error_type, answer.error_type) == one.label.error_type


def right_operator(one: Failure, answer: Answer) -> bool:
    """Whether the answer names operators, and only operators of the label."""
    return names_operators(answer.operator, one.label.operator)


def names_operators(said: str, labeled: str) -> bool:
    """Whether a text names operators, and only labeled ones."""
    named = _operators(said)
    return bool(named) and named <= _operators(labeled)


def _operators(text: str) -> set[str]:
    """Return operator names for comparison: lower case, one kind of separator, without counts.

    The prefix of a file format's default operator set is removed too: runtimes omit it (`Split`), coverage tables
    need it (`onnx.Split`). PyTorch's `aten` stays, because other libraries have operators of the same names.
    """
    names = re.split(r"[,;\s]+", re.sub(r"\(\d+\)", "", text))
    bare = (name.strip("'\"`").replace("::", ".").lower() for name in names)
    return {name.removeprefix("onnx.").removeprefix("openvino.") for name in bare if name}


@dataclass(frozen=True, kw_only=True)
class Merging:
    """Counts of pairs of check lines: in one finding, of these with one cause; with one cause, of these apart."""

    together: int
    pure: int
    related: int
    apart: int


def merging(failures: Sequence[Failure], given: dict[str, Answer]) -> Merging:
    """Count how well findings match root causes, over all pairs of check lines that have a finding."""
    together = pure = related = apart = 0
    for first, second in combinations([one for one in failures if given[one.id].finding], 2):
        merged = given[first.id].finding == given[second.id].finding
        same = first.label.group == second.label.group
        together += merged
        pure += merged and same
        related += same
        apart += same and not merged
    return Merging(together=together, pure=pure, related=related, apart=apart)


def exception_class(one: Failure) -> str:
    """Return the last exception class at the start of a line of the text, or an empty string."""
    return last_class(one.printed)


def last_class(text: str) -> str:
    """Return the last exception class at the start of a line, or an empty string."""
    found = [match.group(1) for match in map(_CLASS.match, text.splitlines()) if match]
    return found[-1] if found else ""


def baselines(seen: Sequence[Failure]) -> dict[str, Rule]:
    """Return two rules that don't read messages, fitted to the seen half."""
    frequent = Counter(one.label.error_type for one in seen).most_common(1)[0][0]
    by_class: dict[str, Counter[str]] = defaultdict(Counter)
    for one in seen:
        by_class[exception_class(one)][one.label.error_type] += 1
    learnt = {name: counted.most_common(1)[0][0] for name, counted in by_class.items()}
    return {
        "always the most frequent type": lambda one: frequent,
        "the exception class alone": lambda one: learnt.get(exception_class(one), frequent),
    }


def words(one: Failure) -> str:
    """Return the end of the printed text without numbers, so that two occurrences of one message are equal."""
    message = one.text if one.line is None else one.line.error_message
    return " ".join(re.sub(r"\d+", "#", message).split())[-_WORDS:]


def _share(right: int, number: int) -> str:
    return f"{right} of {number} ({100 * right / number:.1f} %)" if number else "none"


def _half_column(failures: Sequence[Failure], given: dict[str, Answer], rules: dict[str, Rule]) -> list[str]:
    """Return the cells of a half's column in the first table."""
    number = len(failures)
    operators = [one for one in failures if one.label.operator]
    pairs = merging(failures, given)
    types = sum(right_type(one, given[one.id]) for one in failures)
    severities = sum(given[one.id].severity == one.label.severity for one in failures)
    named = sum(right_operator(one, given[one.id]) for one in operators)
    guessed = [sum(rule(one) == one.label.error_type for one in failures) for rule in rules.values()]
    return [
        str(number),
        str(len({one.label.group for one in failures})),
        _share(types, number),
        _share(severities, number),
        _share(named, len(operators)),
        _share(pairs.pure, pairs.together),
        _share(pairs.apart, pairs.related),
        *(_share(right, number) for right in guessed),
    ]


def _in_words_unseen(halves: dict[str, tuple[Failure, ...]], given: dict[str, dict[str, Answer]]) -> Iterator[str]:
    known = {words(one) for one in halves[SEEN]}
    new = [one for one in halves[HELD_OUT] if words(one) not in known]
    right = sum(right_type(one, given[HELD_OUT][one.id]) for one in new)
    yield f"\n{len(new)} of the held-out failures end in words that no seen failure ends in, except for numbers."
    yield f"Their error type is right for {_share(right, len(new))}. The others are mostly messages of hwcompat."


def _totals(halves: dict[str, tuple[Failure, ...]], given: dict[str, dict[str, Answer]]) -> Iterator[str]:
    rules = baselines(halves[SEEN])
    names = [
        *("failures", "root causes", "error type right", "severity right", "operator right, where one is labeled"),
        *("pairs in one finding that have one root cause", "pairs of one root cause in two findings"),
        *(f"baseline: {name}, error type right" for name in rules),
    ]
    columns = [_half_column(failures, given[half], rules) for half, failures in halves.items()]
    yield "| | seen | held out |\n|---|---|---|"
    for name, *cells in zip(names, *columns, strict=True):
        yield f"| {name} | {' | '.join(cells)} |"


def _by_type(halves: dict[str, tuple[Failure, ...]], given: dict[str, dict[str, Answer]]) -> Iterator[str]:
    yield "\n## By error type\n\nFailures with this label, and how many the diagnosis gets right.\n"
    yield "| error type | seen | right | held out | right |\n|---|---|---|---|---|"
    for name in sorted({one.label.error_type for failures in halves.values() for one in failures}):
        cells = []
        for half, failures in halves.items():
            these = [one for one in failures if one.label.error_type == name]
            cells += [str(len(these)), str(sum(right_type(one, given[half][one.id]) for one in these))]
        yield f"| {name} | {' | '.join(cells)} |"


def _by_source(halves: dict[str, tuple[Failure, ...]], given: dict[str, dict[str, Answer]]) -> Iterator[str]:
    yield "\n## By source\n\n| source | seen: error type right | held out: error type right |\n|---|---|---|"
    for source in ("run", "seeded", "thread"):
        cells = []
        for half, failures in halves.items():
            these = [one for one in failures if one.source == source]
            cells.append(_share(sum(right_type(one, given[half][one.id]) for one in these), len(these)))
        yield f"| {source} | {' | '.join(cells)} |"


def _wrong(failures: Sequence[Failure], given: dict[str, Answer]) -> Iterator[str]:
    yield "\n## What was wrong in the seen half\n\n| failure | label | diagnosis |\n|---|---|---|"
    for one in failures:
        answer, label = given[one.id], one.label
        pairs = [] if right_type(one, answer) else [(label.error_type, answer.error_type)]
        if answer.severity != label.severity:
            pairs.append((label.severity, answer.severity))
        if label.operator and not right_operator(one, answer):
            pairs.append((label.operator, f"operator: {answer.operator}" if answer.operator else "no operator"))
        if pairs:
            labeled, instead = ("; ".join(texts).replace("|", "\\|") for texts in zip(*pairs, strict=True))
            yield f"| {one.id} | {labeled} | {instead} |"


@click.command()
def main() -> None:
    """Print the page."""
    halves = {half: read(half) for half in (SEEN, HELD_OUT)}
    given = {half: answers(failures) for half, failures in halves.items()}
    held_out = halves[HELD_OUT]
    right = sum(right_type(one, given[HELD_OUT][one.id]) for one in held_out)
    click.echo(_HEAD.format(right=right, number=len(held_out)))
    for rows in (_totals, _in_words_unseen, _by_source, _by_type):
        click.echo("\n".join(rows(halves, given)))
    click.echo("\n".join(_wrong(halves[SEEN], given[SEEN])))


if __name__ == "__main__":
    main()
