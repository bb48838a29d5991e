"""Every check of this folder sees the fault that it is there for, planted in an output or a deed that was fine."""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzzing import share_of
from hostile import TRAPS, Hostile, texts
from readers import (
    PAGES,
    check_csv,
    check_github,
    check_html,
    check_json,
    check_markdown,
    check_terminal,
    check_xml,
    commands,
    known_markup,
)
from watched import Broke, Opened, Sentinel, Surroundings, check_error, check_said, limited, refused_or

from hardware.errors import BrokenInput, HwCompatError

PAGE = "<!doctype html><html lang=en><head><meta http-equiv=x content=\"default-src 'none'\"><style>a</style></head>"
PAGE += "<body><h1>one</h1>{}<script>{}</script></body></html>"
JUNIT = '<testsuites><testsuite name="a"><testcase name="b" classname="c">{}</testcase></testsuite></testsuites>'


FINE_MARKDOWN = '# a\n\n<a id="finding-1"></a>\n\n[b](#finding-1) `www.hwcevil`<br>'
FINE_GITHUB = "a\n::error title=x::y\n::warning file=a,line=1,title=b::c\n"
ELEMENTS = (
    *("<hwcevil>", "<h1 onclick=1>", "<a href='javascript:1'>", "<!-- -->", "\u202e", "<?hwcevil?>", "<!DOCTYPE x>"),
    *("<a href='http://x.example'>", "<script>let a</script>", "<h1 style='x'>"),
)
PLANTED: dict[Callable[[str], Any], tuple[str, list[str]]] = {
    check_terminal: (
        "a\nb ::std::x, a::error::b, # #[",
        [
            *("\x1b[2J", "a\x9b2J", "\u202eb", "a\rb", "::error::x", "  ::add-mask::x", "x##[error]y"),
            *("a\n\t::warning f=x::y", "##vso[task]", "##teamcity[a"),
        ],
    ),
    check_csv: ("a,b\n'=1,2\n", ["a,b\n=1,2\n", 'a\n" +1"\n', "a\n＝1\n", "a,b\n1\n", "a\n\x1b\n"]),
    check_json: ('{"a": 1}', ['{"a": NaN}', '{"a": 1, "a": 2}', '{"a": "\u202e"}', '{"a": "##[error]"}']),
    check_xml: (JUNIT.format(""), [*map(JUNIT.format, ("<hwcevil/>", '<skipped x="1"/>', "\u202e")), "<a/>"]),
    check_html: (
        PAGE.format("<a href='#x'>x</a>", '{"a": 1}'),
        [
            *(PAGE.format(one, "let b") for one in ELEMENTS),
            *(PAGE.format("", script) for script in ('{"a": "<b>"}', "hwcevil()")),
            PAGE.format("", "").replace("default-src", "x"),
        ],
    ),
    check_markdown: (
        FINE_MARKDOWN,
        [
            *("<hwcevil>", "a <img src=x> b", "[a](http://x.example)", "![a](#finding-1)", "http://hwcevil.example"),
            *("@hwcevil", "<http://hwcevil.example>", "a\n::error::b", "\x1b[1m", '<a id="finding-1" onclick="1">'),
        ],
    ),
    functools.partial(check_github, most=1): (
        FINE_GITHUB,
        [
            *("::error title=x::y\n::error title=x::y", "::add-mask::x", "::error file=a::x", "##[error]x", "\x1b"),
            "::error title=a,x=b::c",
        ],
    ),
}
"""By check an output that is fine, and others with something planted."""


def test_a_check_of_outputs_sees_what_is_planted() -> None:
    for check, (fine, wrong) in PLANTED.items():
        check(fine)
        for text in wrong:
            with pytest.raises(AssertionError):
                check(text)


def test_the_elements_of_pages_were_found_in_their_templates() -> None:
    tags, attributes = known_markup()
    assert {"script", "table", "details", "svg"} <= tags
    assert {"class", "id", "href"} <= attributes
    assert not {name for name in attributes if name.startswith("on")}
    assert len(list(PAGES.glob("*.j2"))) > 10


def test_commands_are_found_as_the_runner_finds_them() -> None:
    assert [name for name, _ in commands("x\n  ::error file=a::b\n::nothing::x\n::error\nx::error::y")] == ["error"]
    assert [name for name, _ in commands("a\u2028::add-mask::x##[warning]")] == ["add-mask", "##["]


def test_a_sentinel_that_was_made_is_seen(tmp_path: Path) -> None:
    sentinel = Sentinel(tmp_path)
    sentinel.check()
    eval(texts(sentinel.path)[0])  # the first of them is what an eval would run
    with pytest.raises(AssertionError, match="code from an input"):
        sentinel.check()


def test_a_file_that_was_written_elsewhere_is_seen(place: Path) -> None:
    beside, new = place.parent / "beside", place.parent / "x"
    for deed in (new.mkdir, lambda: beside.write_text("ab"), beside.unlink, lambda: new.symlink_to("/")):
        beside.write_text("a")
        around = Surroundings(place.parent, place)
        (place / "x").write_text("a")
        around.check()
        deed()
        with pytest.raises(AssertionError, match="outside of the output folder"):
            around.check()
        if new.is_dir() and not new.is_symlink():
            new.rmdir()


def _grow() -> None:
    found = []
    while True:
        found.append(bytearray(1 << 20))


def test_a_process_without_limits_is_ended_and_what_it_raises_is_told() -> None:
    assert limited(lambda: 1) == 1
    with pytest.raises(Broke, match="MiB of memory"):
        limited(_grow, memory=64 << 20)
    with pytest.raises(Broke, match="no answer"):
        limited(threading.Event().wait, seconds=0.2)
    with pytest.raises(Broke, match="no answer"):
        limited(os._exit, 0)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        limited(lambda: 1 / 0)
    assert limited(lambda: _raise(BrokenInput("no"))) is None


def _raise(error: Exception) -> None:
    raise error


def test_an_error_that_is_no_line_or_no_error_for_users_is_seen() -> None:
    assert refused_or(lambda: _raise(BrokenInput("\x1b[2J\n::error::x"))) is None
    with pytest.raises(ZeroDivisionError):
        refused_or(lambda: 1 / 0)

    class Strange(HwCompatError):
        exit_code = 3

    with pytest.raises(AssertionError, match="exit code 3"):
        check_error(Strange("no"))
    for text in ("Traceback (most recent call last)", "error: a\nerror: b", "error: \x1b", "internal error: x"):
        with pytest.raises(AssertionError):
            check_said(text)


def test_files_that_are_opened_or_run_are_heard(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.py").write_text("")
    with Opened(tmp_path) as opened:
        (tmp_path / "a.json").read_text()
        compile("", str(tmp_path / "b.py"), "exec")
    (tmp_path / "b.py").read_text()
    assert opened.names == {"open a.json", "compile b.py"}


def test_inputs_are_shared_out_in_the_proportions_of_an_ordinary_run() -> None:
    assert share_of(60, 2000, None) == 60
    assert share_of(60, 2000, "50000") == 1500
    assert share_of(1, 2000, "100") == 1


def test_an_ordinary_run_tries_more_than_two_thousand() -> None:
    sources = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    marks = [int(number) for text in sources for number in re.findall(r"^@pytest\.mark\.fuzz\((\d+)\)$", text, re.M)]
    assert sum(marks) > 2000  # those with several parameters are counted once here


def test_changes_change_and_traps_are_what_they_say(tmp_path: Path) -> None:
    whole = {"a": [1, "x", {"b": None}], "c": "d"}
    hostile = Hostile("a seed")
    assert Hostile("a seed").text() == Hostile("a seed").text()
    assert sum(hostile.changed(whole) != whole for _ in range(50)) > 40
    assert sum(hostile.bytes(b"x" * 100) != b"x" * 100 for _ in range(50)) > 40
    assert any(hostile.retold(whole) != whole for _ in range(20))
    assert whole == {"a": [1, "x", {"b": None}], "c": "d"}
    for kind, make in TRAPS.items():
        make(tmp_path / kind, tmp_path)
        assert os.path.lexists(tmp_path / kind), kind
    assert sys.getsizeof(hostile.text()) > 0
