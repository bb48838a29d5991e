"""Addresses of evidence in object storage: a place, no secret, and no path."""

from __future__ import annotations

import pytest
from front_doors import reporter

import run_test_generation
from hardware.command_line import open_door
from hardware.errors import UsageError
from hardware.evidence.address import is_address, parse_address


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:secret@bucket/x",
        "s3://user@bucket/x",
        "abfs://container:secret@account/x",
        "s3://bucket/x?X-Amz-Signature=secret",
        "abfs://container@account.dfs.core.windows.net/x?sig=secret",
        "s3://bucket/x#secret",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(text, capsys):
    assert reporter.main(["--collect-all", "--evidence", text]) == 4
    said = "".join(capsys.readouterr())
    assert "secret" not in said.replace("AWS_SECRET", "")
    assert "key:" not in said
    assert "credentials and signatures don't belong in it" in said


@pytest.mark.parametrize("text", ["zip://x::s3://bucket/y", "s3://", "s3:///x", "s3://bucket/../other", "s3://b\nb"])
def test_what_is_no_address_is_refused(text):
    assert is_address(text)
    with pytest.raises(UsageError):
        parse_address(text)


def test_a_path_is_no_address_and_a_containers_name_is_no_user(tmp_path):
    for text in ("hwcompat-out/evidence", "./s3:/bucket", str(tmp_path), "C:\\evidence"):
        assert not is_address(text)
    assert str(parse_address("abfs://container@account.dfs.core.windows.net/x/")) == (
        "abfs://container@account.dfs.core.windows.net/x"
    )


def test_a_run_does_not_write_there_and_says_what_does(tmp_path, capsys):
    words = ["--model", "bert", "--device", "cpu", "--run", "--evidence", "s3://bucket/prefix"]
    assert open_door(run_test_generation.main, words, program="x") == 4
    said = capsys.readouterr().err
    assert "a run can't write to s3://bucket/prefix" in said
    assert "--publish s3://bucket/prefix" in said
