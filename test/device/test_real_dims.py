"""Models at real widths with few layers: all checks pass, a fault fails, and a tiny model's pass stays its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import CommandLine

from hardware.evidence.record import Outcome

pytestmark = pytest.mark.slow

CONFIG = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "hidden_size": 192,
    "intermediate_size": 768,
    "num_attention_heads": 3,
    "num_hidden_layers": 12,
    "vocab_size": 5000,
    "id2label": {"0": "a", "1": "b", "2": "c"},
}
CELL = "bert/text-classification/{}/float32"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return made


@pytest.mark.extended
def test_a_configuration_without_weights_runs_at_its_widths(
    command_line: CommandLine, folder: Path, tmp_path: Path
) -> None:
    ran = command_line.run(tmp_path, "--model", folder, "--dims", "real", "--device", "cpu", "--run")
    cell = CELL.format("cpu")
    assert ran.code == 0
    assert set(ran.outcomes(cell).values()) == {Outcome.PASSED}
    line = ran.lines(cell)["matches_reference"]
    assert (line.subject, line.conditions["dimensions"]) == ("config", "real widths of a config.json, 2 layer(s)")
    assert "are not tested" in ran.err
    assert re.search(r"/cpu/float32 +config ", ran.out)
    (suite,) = ran.suites.glob("test_*.py")
    text = suite.read_text(encoding="utf-8")
    assert '"hidden_size": 192,' in text
    assert '"num_hidden_layers": 2,' in text
    assert "--dims real" in text
    assert str(folder) not in text


@pytest.mark.extended
def test_what_does_not_fit_runs_in_pieces_and_what_is_not_here_is_refused(
    command_line: CommandLine, folder: Path, tmp_path: Path
) -> None:
    huge = CONFIG | {"hidden_size": 65536, "num_attention_heads": 64, "intermediate_size": 262144}
    (folder / "config.json").write_text(json.dumps(huge), encoding="utf-8")
    ran = command_line.run(tmp_path, "--model", folder, "--dims", "real", "--device", "cpu")
    assert ran.code == 0
    assert re.search(r"real widths of a config.json, 2 layer\(s\) in \d+ pieces", ran.err)
    ran = command_line.run(tmp_path, "--model", "acme/bert-x", "--dims", "real", "--device", "cpu")
    assert "hf download acme/bert-x config.json" in ran.error
