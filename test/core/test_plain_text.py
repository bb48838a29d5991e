"""Untrusted text on a terminal, in a CI log, in JSON and in Markdown: shown, and never obeyed."""

from __future__ import annotations

import json

import pytest

from hardware.plain_text import (
    columns,
    folded,
    json_text,
    labelled,
    markdown,
    obeyed_by_none,
    one_line,
    printable,
    size_text,
    wrapped,
)


def test_commands_to_a_terminal_or_a_ci_server_are_escaped_and_other_text_is_kept():
    wanted = {
        "::error::x": r"\x3a:error::x",
        "  ::error::x": r"  \x3a:error::x",
        "a ::error::x": r"a \x3a:error::x",
        "##[error]x": r"#\x23[error]x",
        "a##vso[task.setvariable]b": r"a#\x23vso[task.setvariable]b",
        "##teamcity[x]": r"#\x23teamcity[x]",
        "###[x]": r"##\x23[x]",
        "\x1b[31m": r"\x1b[31m",
        "\x9b31m": r"\x9b31m",
        "a\u202eb\u2066c": r"a\u202eb\u2066c",
        "\ud800": r"\ud800",
    }
    kept = ("aten::mm", "std::vector<int>", "## heading", "a # b", "c::d::e", "é ñ 漢字 ✓")
    wanted |= {text: text for text in kept}
    assert {text: printable(text) for text in wanted} == wanted


def test_lines_that_are_kept_are_each_looked_at():
    assert printable("a\n::error::b", keep="\n") == "a\n\\x3a:error::b"
    assert printable("a\n::error::b") == r"a\n::error::b"


def test_no_line_that_was_folded_begins_with_a_command():
    text = "aaaaaaaaa::error::x"
    assert wrapped(text, width=9) == ["aaaaaaaaa", r"\x3a:error::", "x"]
    assert wrapped("aa" + text, width=11, indent="  ")[1] == r"  \x3a:error::"
    assert not [line for line in folded("name  ", f"{'a' * 74}::error::x") if line.lstrip().startswith("::")]
    assert obeyed_by_none("a\n  ::error::b") == "a\n  \\x3a:error::b"


def test_cells_of_a_table_are_printable_and_stand_below_each_other():
    first, second = columns(["a", "b"], [["x\x1by", "::z"]])
    assert second == r"x\x1by  \x3a:z"
    assert first.index("b") == second.index(r"\x3a")


def test_json_is_printable_and_has_the_same_values():
    for text in ("\x9b31m", "\x7f", "\u202e", "##[error]", "\ud800", "\u2028", "\U000e0041", "a\tb\n"):
        shown = json_text({text: [text]})
        assert json.loads(shown) == {text: [text]}
        assert shown.replace("\n", "").isprintable()
        assert "##" not in shown
        shown.encode()
        assert json_text(text, ascii_alone=True).isascii()


def test_json_that_can_be_read_stays_so_and_holds_no_infinity():
    assert json_text({"a": "漢"}, indent=None) == '{"a": "漢"}'
    with pytest.raises(ValueError, match="JSON"):
        json_text(float("inf"))


def test_a_line_of_anybodys_is_one_line():
    assert one_line("a\n b\t\x1bc") == r"a b \x1bc"
    assert one_line("x" * 400) == "x" * 299 + "…"


def test_markdown_shows_text_as_it_is():
    wanted = {
        "<script>&": "&lt;script&gt;&amp;",
        "a|b": r"a\|b",
        "[x](javascript:1)": r"\[x](javascript:1)",
        "https://a.example": "https&#58;//a.example",
        "@everyone": "&#64;everyone",
        "`a` ~~b~~ *c* _d_ e_f": r"\`a\` \~\~b\~\~ \*c\* \_d\_ e_f",
        "a\n\n# b\x1b": r"a # b\\x1b",
    }
    assert {text: markdown(text) for text in wanted} == wanted
    blocks = {"- a": r"\- a", "# a": r"\# a", "1. a": "&#49;. a", "a": "a"}
    assert {text: markdown(text, opens_block=True) for text in blocks} == blocks


def test_sizes_are_told_in_binary_units():
    sizes = {None: "unknown", 12: "12 B", 2048: "2 KiB", 3 << 20: "3 MiB", 1 << 40: "1 TiB"}
    assert {size: size_text(size) for size in sizes} == sizes


def test_labelled_texts_are_folded_below_each_other_and_an_address_stays_whole():
    address = "https://example.org/" + "a" * 90
    lines = labelled([("Rule", f"{'word ' * 20}see {address}"), ("", "short")], width=80)
    assert lines[-1] == "        short"
    assert lines[-2] == f"        {address}"
    assert all(len(line) <= 80 for line in lines if address not in line)
