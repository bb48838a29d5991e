"""Documentation: code in pages is found and compared, links lead somewhere, every page has its place on the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.documentation.__main__ import pages, ran
from benchmarks.documentation.blocks import alike, blocks_of, difference
from benchmarks.documentation.commands import commands_page
from benchmarks.documentation.links import broken_links
from benchmarks.documentation.workspace import ROOT
from benchmarks.pictures import IMAGES, PAGES, pictures, with_picture

PAGE = """# A page

<!-- exit 3, show 1 -->
```console
$ printf 'one 1\\ntwo 2\\n'; exit 3
one 5
…
```

```python
print("this is run")
```

<!-- not run: it has no machine -->
```console
$ never
```

```text
$ nothing
```
"""


def test_output_is_compared_but_for_what_differs_from_run_to_run() -> None:
    assert alike("took 1.25s  of 3e-05") == alike("took 12s of 1.5e-7")
    assert alike("run 20261124T110228Z-7dd990-2480.jsonl") == alike("run 20251124T110229Z-7ed990-1.jsonl")
    assert alike("passed 1") != alike("failed 1")
    for wanted, got, fits in (
        (("a 1", "b"), ("a 2", "b"), True),
        (("a", "…"), ("a", "b", "c"), True),
        (("…", "c"), ("a", "b", "c"), True),
        (("a", "…", "d"), ("a", "b", "c"), False),
        (("a",), ("a", "b"), False),
        (("a", "b"), ("b", "a"), False),
        ((), ("a",), False),
        (("passed",), ("failed",), False),
    ):
        assert (difference(wanted, got) == "") is fits, (wanted, got)


def test_a_page_is_run_in_order_and_what_is_wrong_is_said() -> None:
    (first, new, why), (_, _, fine) = ran(PAGE)
    assert why == ""
    assert new.steps[0].printed == ("one 1", "…")
    assert fine == ""
    assert first.exit_code == 3
    wrong = PAGE.replace("exit 3, show 1", "exit 0, show 1").replace('print("this is run")', "1 / 0")
    (_, _, code), (_, _, raised) = ran(wrong)
    assert "ends with 3" in code
    assert "ZeroDivisionError" in raised
    (_, _, other), _ = ran(PAGE.replace("one 5", "won 5"))
    assert "'won 5'" in other


def test_links_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text('# Some `code` here, really?\n<a id="own"></a>\n', encoding="utf-8")
    page = tmp_path / "a.md"
    page.write_text(
        "[x](b.md) [x](b.md#some-code-here-really) [x](b.md#own) [x](https://example.org) `[x](no.md)`\n"
        "[x](gone.md) [x](b.md#gone) ![x](gone.png) [x](../../../../../../etc/passwd)\n",
        encoding="utf-8",
    )
    found = [one.to for one in broken_links([page], tmp_path)]
    assert found == ["gone.md", "b.md#gone", "gone.png", "../../../../../../etc/passwd"]


def test_every_link_of_our_pages_leads_somewhere() -> None:
    assert list(broken_links(pages(), ROOT)) == []


def test_each_measured_page_shows_a_picture_of_its_own_figures() -> None:
    """`python -m benchmarks.pictures` draws them."""
    assert set(pictures()) == {path.stem for path in PAGES.glob("*.md")}
    for name, picture in pictures().items():
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        assert with_picture(name, picture, text) == (text, (IMAGES / f"{name}.svg").read_text(encoding="utf-8")), name


@pytest.mark.parametrize("name", ["inventory", "backends", "test-generation"])
def test_the_calls_of_an_earlier_system_work(name: str) -> None:
    page = (ROOT / "docs" / "coming-from" / f"{name}.md").read_text(encoding="utf-8")
    found = [(block.line, why) for block, _, why in ran(page)]
    assert len(found) >= 4
    assert [one for one in found if one[1]] == []


def test_every_page_has_its_place_on_the_site() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = set(re.findall(r": ([\w/-]+\.md)$", config, re.MULTILINE))
    docs = ROOT / "docs"
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    aside = {name for name in there if name.startswith(("formats/", "measured/transformers-"))}
    assert there - aside == nav


def test_the_code_of_our_pages_can_be_run() -> None:
    """It is run by `make docs-check`; here it must be found, and what isn't run has a reason."""
    found = [block for path in pages() for block in blocks_of(path.read_text(encoding="utf-8"))]
    assert len(found) > 30
    assert all(len(block.not_run) > 10 for block in found if block.not_run)
    assert sum(bool(block.not_run) for block in found) < len(found) / 2


def test_the_page_of_commands_names_every_command_and_option() -> None:
    """Texts may lag behind; `python -m benchmarks.documentation commands` writes the page."""

    def names(text: str) -> list[str]:
        return re.findall(r"(?m)^## .+$|^\| `--[^`]+`", text)

    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    assert names(page) == names(commands_page())
