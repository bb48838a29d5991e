"""`make run PYTHON=…` says what an environment lacks, and installs nothing."""

import sys

import pytest

from hardware.requirements import main, missing

TEXT = "# comment\ntorch==2.13.0\nno-such-package==1.0\nanother_absent>=2\npytest==9.2.0\n"


def test_only_absent_packages_are_listed_with_their_versions():
    assert missing(TEXT) == ["no-such-package==1.0", "another_absent>=2"]


@pytest.mark.parametrize(("name", "code"), [("transformers", 4), ("openvino", 0)])
def test_the_code_says_whether_the_main_job_can_run(tmp_path, monkeypatch, capsys, name, code):
    file = tmp_path / "requirements.txt"
    file.write_text(f"{name}==1.0\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["requirements", str(file)])
    monkeypatch.setattr("hardware.requirements._is_installed", lambda _name: False)
    assert main() == code
    said = capsys.readouterr().err
    assert name in said
    assert ("pip install" in said) == (code == 4)
