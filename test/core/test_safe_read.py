"""Reading untrusted files: what is too large, too deep, or no regular file is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hardware.safe_read import (
    DEEPEST,
    check_depth,
    check_not_sparse,
    is_folder,
    is_inside,
    is_plain_file,
    opened,
    parsed_json,
    parsed_toml,
    read_bytes,
    read_json,
    read_text,
    reason_of,
)


def test_a_file_is_read_and_one_that_is_longer_than_its_limit_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    assert read_json(path, longest=8) == {"a": 1}
    assert read_text(path, longest=8) == '{"a": 1}'
    with pytest.raises(OSError, match="larger than 7 B"):
        read_bytes(path, longest=7)


def test_a_file_that_tells_no_size_is_read_to_its_limit():
    file = Path("/proc/self/status")
    if not file.exists():
        pytest.skip("no such file here")
    assert file.stat().st_size == 0
    with pytest.raises(OSError, match="larger than 10 B"):
        read_bytes(file, longest=10)


def test_what_is_no_regular_file_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "nowhere").symlink_to("nothing")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("file")
    names = ("pipe", "zeros", "nowhere", "circle", "folder")
    for name in names:
        with pytest.raises(OSError, match=r"not a regular file|No such file|symbolic links"), opened(tmp_path / name):
            pytest.fail(f"{name} was opened")
    assert [is_plain_file(tmp_path / name) for name in names] == [False] * 5
    assert is_plain_file(tmp_path / "link")
    assert [is_folder(tmp_path / name) for name in (*names, "file")] == [False] * 4 + [True, False]


def test_a_name_that_no_file_can_have_is_no_error(tmp_path):
    for name in ("x" * 300, "a\0b", "~" * 5000):
        assert not is_plain_file(tmp_path / name)
        assert not is_folder(tmp_path / name)
        assert not is_inside(tmp_path / ".." / name, tmp_path)


def test_what_lies_inside_is_told_wherever_links_lead(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "out").symlink_to("..")
    (inner / "in").symlink_to("deeper")
    assert is_inside(inner / "a", inner)
    assert is_inside(inner / "in" / "a", inner)
    assert not is_inside(inner / "out" / "a", inner)
    assert not is_inside(inner / ".." / "a", inner)
    assert not is_inside(Path("/etc/passwd"), inner)


def test_a_large_file_of_holes_is_told_from_one_that_was_written(tmp_path):
    with (tmp_path / "holes").open("wb") as file:
        file.write(b"x")
        file.truncate(1 << 40)
    (tmp_path / "whole").write_bytes(b"x" * 4096)
    with opened(tmp_path / "holes") as file, pytest.raises(OSError, match=r"only \d.* of its 1 TiB"):
        check_not_sparse(file)
    with opened(tmp_path / "whole") as file:
        check_not_sparse(file)
        assert file.read(1) == b"x"


def test_json_that_is_too_deep_or_holds_no_json_value_is_a_value_error():
    for text in ("[" * 200_000, "[" * 200 + "]" * 200, '{"a":' * 200 + "1" + "}" * 200):
        for given in (text, text.encode("utf-16")):
            with pytest.raises(ValueError, match="deep"):
                parsed_json(given)
    for text, reason in (
        ("NaN", "NaN is not a valid JSON number"),
        ("[Infinity]", "Infinity is not a valid JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a valid JSON number"),
        ("1e999", "1e999 is too large"),
        ("[-1e400]", "-1e400 is too large"),
        ("9" * 5000, "4300 digits"),
        ("", "Expecting value"),
    ):
        with pytest.raises(ValueError, match=reason):
            parsed_json(text)
    assert parsed_json('{"a": -Infinity}', finite=False) == {"a": -float("inf")}, "configurations may hold it"


def test_json_as_deep_as_it_may_be_is_read():
    text = "[" * DEEPEST + "]" * DEEPEST
    assert json.dumps(parsed_json(text)) == text
    check_depth(parsed_json(text))
    with pytest.raises(ValueError, match=f"more than {DEEPEST} deep"):
        check_depth([json.loads(text)])


def test_toml_is_read_unless_its_size_or_depth_is_a_trick():
    assert parsed_toml('a.b."c.d" = 1\n[[x]]\ny = "1.2.3"\n') == {"a": {"b": {"c.d": 1}}, "x": [{"y": "1.2.3"}]}
    assert parsed_toml(f'a = "{"a " * 3000}"')["a"].startswith("a a ")
    for text, reason in (
        (f"a = {'[' * 3000}{']' * 3000}", "deep"),
        (".".join(["a"] * 3000) + " = 1", "more than 100 parts"),
        (f"[{'.'.join(['a'] * 3000)}]", "more than 100 parts"),
        (f"a = {{{' . '.join(['b'] * 3000)} = 1}}", "more than 100 parts"),
        ('"a".' * 3000 + "a = 1", "more than 100 parts"),
        (f"a = {'9' * 5000}", "4300 digits"),
        ("a = ", "Invalid value"),
    ):
        with pytest.raises(ValueError, match=reason):
            parsed_toml(text)


def test_a_reason_is_one_line_without_the_path(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        read_bytes(tmp_path / "none", longest=1)
    assert reason_of(error.value) == "No such file or directory"
    assert reason_of(ValueError("a\n\x1b[31m::error::b " + "x" * 500)).startswith(r"a \x1b[31m::error::b")
    assert len(reason_of(ValueError("x" * 500))) == 160
