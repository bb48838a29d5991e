"""The bytes of each golden suite are those that were recorded; `test/recorded` writes them anew and runs them."""

from __future__ import annotations

from pathlib import Path

from golden_suites import HASHES, every_suite, hashes_of

ROOT = Path(__file__).parents[2]


def test_every_golden_suite_has_its_recorded_bytes() -> None:
    suites = every_suite()
    recorded, made = HASHES.read_text().splitlines(), hashes_of(suites).splitlines()
    assert set(recorded) == set(made), "run pytest test/recorded --update-golden and look at the difference"
    assert [name for name, text in suites.items() if str(ROOT) in text or str(Path.home()) in text] == []
