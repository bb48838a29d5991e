"""Rules that limit a level: the lowest that holds counts, none raises one, and one that cannot count is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from generators.compatibility.rule_facts import Facts
from generators.compatibility.rules import RuleSet, load_rules, predict
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.cell import Cell
from hardware.errors import BrokenInput
from reports.reason_text import texts

CELL = Cell.parse("some/task/xpu/float32")
RULE = """
[[rule]]
id = "{name}"
when = {when}
target = "xpu"
{says}
basis = "{basis}"
reason = "because of {name}"
source = "https://example.org/table"
"""


def claim(level: str) -> str:
    when = '{ family = "vision", architecture = "vision" }'
    return RULE.format(name="own.claim", when=when, says=f'level = "{level}"', basis="assumed")


def small(name: str, limit: str, most: int) -> str:
    """Return a rule that limits models of at most so many parameters."""
    when, says = f"{{ parameters = {{ at_most = {most} }} }}", f'at_most = "{limit}"'
    return RULE.format(name=name, when=when, says=says, basis="predicted")


def load(folder: Path, *texts: str) -> RuleSet:
    file = folder / "own.toml"
    file.write_text("".join(texts), encoding="utf-8")
    return load_rules([file])


def predicted(rules: RuleSet, parameters: int | None = None) -> Verdict:
    more = {} if parameters is None else {"parameters": parameters}
    found = predict(CELL, Facts(family="vision", architecture="vision", **more), rules)
    return replace(found, rule_ids=tuple(id_.partition("+")[0] for id_ in found.rule_ids))


def test_a_limit_lowers_a_claim_and_says_why(tmp_path: Path) -> None:
    for limit in ("medium", "low", "unsupported", "none", "unknown"):
        rules = load(tmp_path, claim("high"), small("own.small", limit, 10))
        low = predicted(rules, 5)
        assert (low.level, low.basis) == (Level(limit), Basis.PREDICTED)
        assert texts(low.reasons) == ("because of own.small",)
        assert set(low.rule_ids) == {"own.claim", "own.small"}
        free = predicted(rules, 11)
        assert (free.level, free.rule_ids) == (Level.HIGH, ("own.claim",))
        assert predicted(rules).level is Level.HIGH  # what isn't known limits nothing


def test_no_limit_raises_a_claim(tmp_path: Path) -> None:
    found = predicted(load(tmp_path, claim("unsupported"), small("own.small", "medium", 10)), 5)
    assert (found.level, found.rule_ids) == (Level.UNSUPPORTED, ("own.claim",))


def test_of_several_limits_the_lowest_counts_alone(tmp_path: Path) -> None:
    rules = load(tmp_path, claim("high"), small("own.ten", "medium", 10), small("own.five", "low", 5))
    assert predicted(rules, 7).reasons == (Reason.of("rule", text="because of own.ten"),)
    both = predicted(rules, 3)
    assert (both.level, texts(both.reasons)) == (Level.LOW, ("because of own.five",))
    assert "own.ten" not in both.rule_ids
    rules = load(tmp_path, claim("high"), small("own.open", "unknown", 10), small("own.fails", "low", 5))
    assert [predicted(rules, parameters).level for parameters in (7, 3)] == [Level.UNKNOWN, Level.LOW]


def test_without_a_claim_a_limit_speaks_only_of_failing(tmp_path: Path) -> None:
    wanted = {"unsupported": "unsupported", "none": "unsupported", "low": "low", "medium": "unknown"}
    for limit, level in wanted.items():
        assert predicted(load(tmp_path, small("own.small", limit, 10)), 5).level is Level(level)


def test_a_limit_that_another_one_always_undercuts_is_refused(tmp_path: Path) -> None:
    for level in ("medium", "low"):
        with pytest.raises(BrokenInput, match=r"own\.five .* has no effect"):
            load(tmp_path, small("own.ten", "low", 10), small("own.five", level, 5))
