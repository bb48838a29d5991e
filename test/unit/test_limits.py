"""Rules that limit a level: the lowest that holds counts, none raises one, and one that cannot count is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from generators.compatibility.rule_facts import Facts
from generators.compatibility.rules import RuleSet, load_rules, predict
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.cell import Cell
from hardware.errors import BrokenInput
from reports.reason_text import texts

CELL = Cell.parse("some/task/xpu/float32")


def text(name: str, *, level: str = "", limit: str = "", when: str = '{ family = "vision" }') -> str:
    basis = "predicted" if limit else "assumed"
    says = f'at_most = "{limit}"' if limit else f'level = "{level}"'
    source = "https://example.org/table"
    return "\n".join(
        (
            "[[rule]]",
            f'id = "{name}"',
            f"when = {when}",
            'target = "xpu"',
            says,
            f'basis = "{basis}"',
            f'reason = "because of {name}"',
            f'source = "{source}"',
        )
    )


def load(folder: Path, *texts: str) -> RuleSet:
    file = folder / "own.toml"
    file.write_text("\n\n".join(texts), encoding="utf-8")
    return load_rules([file])


def said(rules: RuleSet, **facts: object) -> Verdict:
    return predict(CELL, Facts(**facts), rules)


def small(name: str, limit: str, most: int) -> str:
    return text(name, limit=limit, when=f"{{ parameters = {{ at_most = {most} }} }}")


CLAIM = text("own.claim", level="high", when='{ family = "vision", architecture = "vision" }')
KNOWN = {"family": "vision", "architecture": "vision"}


@pytest.mark.parametrize("limit", ["medium", "low", "unsupported", "none", "unknown"])
def test_a_limit_lowers_a_claim_and_says_why(tmp_path, limit):
    rules = load(tmp_path, CLAIM, small("own.small", limit, 10))
    low = said(rules, **KNOWN, parameters=5)
    assert (low.level, low.basis) == (Level(limit), Basis.PREDICTED)
    assert texts(low.reasons) == ("because of own.small",)
    assert set(low.rule_ids) == {"own.claim", "own.small"}
    free = said(rules, **KNOWN, parameters=11)
    assert (free.level, free.rule_ids) == (Level.HIGH, ("own.claim",))
    assert said(rules, **KNOWN).level is Level.HIGH  # what isn't known limits nothing


def test_no_limit_raises_a_claim(tmp_path):
    claim = text("own.claim", level="unsupported", when='{ family = "vision", architecture = "vision" }')
    found = said(load(tmp_path, claim, small("own.small", "medium", 10)), **KNOWN, parameters=5)
    assert (found.level, found.rule_ids) == (Level.UNSUPPORTED, ("own.claim",))


def test_of_several_limits_the_lowest_counts_alone(tmp_path):
    rules = load(tmp_path, CLAIM, small("own.ten", "medium", 10), small("own.five", "low", 5))
    assert said(rules, **KNOWN, parameters=7).reasons == (Reason.of("rule", text="because of own.ten"),)
    both = said(rules, **KNOWN, parameters=3)
    assert (both.level, texts(both.reasons)) == (Level.LOW, ("because of own.five",))
    assert "own.ten" not in both.rule_ids


def test_what_is_known_to_fail_is_not_open_and_what_is_open_does_not_work(tmp_path):
    rules = load(tmp_path, CLAIM, small("own.open", "unknown", 10), small("own.fails", "low", 5))
    assert said(rules, **KNOWN, parameters=7).level is Level.UNKNOWN
    assert said(rules, **KNOWN, parameters=3).level is Level.LOW


@pytest.mark.parametrize(
    ("limit", "level"),
    [("unsupported", "unsupported"), ("none", "unsupported"), ("low", "low"), ("medium", "unknown")],
)
def test_where_nothing_is_claimed_a_limit_speaks_only_of_failing(tmp_path, limit, level):
    found = said(load(tmp_path, small("own.small", limit, 10)), parameters=5)
    assert found.level is Level(level)


def test_a_limit_that_another_one_always_undercuts_is_refused(tmp_path):
    with pytest.raises(BrokenInput, match=r"own\.five .* can never count"):
        load(tmp_path, small("own.ten", "low", 10), small("own.five", "medium", 5))
    with pytest.raises(BrokenInput, match="can never count"):
        load(tmp_path, small("own.ten", "low", 10), small("own.five", "low", 5))
