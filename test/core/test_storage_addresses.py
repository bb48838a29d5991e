"""Addresses of evidence in object storage: a place, no secret, and no path."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_doors import invoke

from hardware.errors import UsageError
from hardware.evidence.address import is_address, parse_address


def test_an_address_with_a_secret_is_refused_and_not_repeated() -> None:
    for text in (
        "s3://key:secret@bucket/x",
        "s3://user@bucket/x",
        "abfs://container:secret@account/x",
        "s3://bucket/x?X-Amz-Signature=secret",
        "abfs://container@account.dfs.core.windows.net/x?sig=secret",
        "s3://bucket/x#secret",
    ):
        done = invoke("report", "--evidence", text)
        assert done.code == 4
        shown = done.out + done.err
        assert "secret" not in shown.replace("AWS_SECRET", "")
        assert "key:" not in shown
        assert "credentials and signatures don't belong in an address" in shown


def test_only_what_names_a_bucket_is_an_address(tmp_path: Path) -> None:
    for text in ("zip://x::s3://bucket/y", "s3://", "s3:///x", "s3://bucket/../other", "s3://b\nb"):
        assert is_address(text)
        with pytest.raises(UsageError):
            parse_address(text)
    for text in ("hwcompat-out/evidence", "./s3:/bucket", str(tmp_path), "C:\\evidence"):
        assert not is_address(text)
    container = "abfs://container@account.dfs.core.windows.net/x"  # a container's name is no user
    assert str(parse_address(f"{container}/")) == container
