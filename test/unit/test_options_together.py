"""Options that make no sense together are refused in one line, before anything is done.

The program, started as a user starts it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from front_doors import invoke

REFUSED = {
    "run bert": "unexpected argument 'bert'. Name a model with --model bert",
    "run --model bert --fail-on eror": "'eror' is not one of 'critical', 'error'",
    "run --model bert --fail-on error,info": "'error,info' is not one of",
    "run --model bert --format html": "'html' is not one of 'table', 'json'",
    "run --model bert --timeout nan": "not a number",
    "run --model bert --device ''": "'--device': it is given and empty",
    "run --config h.toml --fail-on error": "--fail-on doesn't go with --config",
    "run --config h.toml --baseline pyproject.toml": "the project file defines what fails the build",
    "run --model bert --update-expected": "--update-expected needs --config",
    "run --model bert --expected x.csv --fail-on error": "--fail-on doesn't go with --expected",
    "run --model bert --expected x.csv": "the expected results 'x.csv' can't be read",
    "run --model bert --address 127.0.0.1:6379": "--address needs --distributed",
    "run --model bert --distributed ray --jobs 2": "--jobs doesn't go with --distributed",
    "run --model bert --distributed ray --machine x": "each node names its own machine",
    "run --model bert --distributed ray --no-redact": "nodes redact evidence before they send it",
    "run --model bert --host lab --distributed ray": "--host doesn't go with --distributed",
    "run --model bert --host lab --no-redact": "evidence is redacted where it is written",
    "run --model bert --host lab -- -k builds": "-- PYTEST… doesn't go with --host",
    "run --model bert --host-checkpoint w": "--host-checkpoint needs --host",
    "run --model bert --host -oProxyCommand=x": "isn't a host",
    "run --model bert --evidence s3://bucket/x": "evidence in s3://bucket/x can't be changed",
    "check test --device cuda": "--device has no effect here",
    "explain bert/fill-mask/cpu/float32 --device cpu": "--device has no effect here",
    "generate --model bert --fail-on error": "No such option '--fail-on'",
    "generate --model bert --distributed ray": "No such option '--distributed'",
    "generate --model bert --list --format csv": "'csv' is not one of",
    "bundle x.zip --model bert --format json": "No such option '--format'",
    "bundle x.tar --model bert --device cpu": "x.tar isn't a zip file",
    "web-page x.zip --model bert --run": "No such option '--run'",
    "evidence refresh --host lab": "No such option '--host'",
    "evidence compact --evidence s3://bucket/x": "evidence in s3://bucket/x can't be changed",
    "evidence publish folder": "'folder' isn't an address in object storage",
    "devices list --host lab --smart": "--host doesn't go with --replay and --smart",
    "report --device cpu": "--device needs --model",
    "report --batch 2": "--batch needs --model",
    "report --matrx": "No such option '--matrx'",
    "report --evidence no-such-folder": "no-such-folder not found",
    "evidence merge x --evidence s3://bucket/x": "hwcompat evidence merge s3://bucket/x --evidence FOLDER copies it",
    "report --matrix --format junit": "--matrix has no format junit",
    "report --matrix --baseline pyproject.toml": "--baseline compares findings",
    "report --format text": "'text' is not one of 'markdown'",
    "matrix --model brt": "'brt' isn't a row of the matrix",
    "matrix --model bert --by family": "--by family shows groups",
    "matrix --baseline pyproject.toml --fail-on ''": "given and empty",
    "matrix --targets ,": "given and empty",
    "matrix --fail-on worse": "--baseline FILE.json",
    "coverage --fail-under nan": "not a number",
    "calibration --model bert": "No such option '--model'",
    "backlog qnn --device qnn": "No such option '--device'",
    "compare a b c": "unexpected extra argument",
    "mesh data=2": "mesh needs exactly one model",
    "mesh dta=2 --model bert": "'dta' isn't an axis of a mesh. Did you mean 'data'?",
    "mesh data=2 --model bert --device openvino": "a mesh can't use 'openvino'",
    "mesh data=2 --model bert --format html": "'html' is not one of",
}


def test_options_that_do_not_go_together_are_refused_in_one_line() -> None:
    wrong = {}
    for command, message in REFUSED.items():
        done = invoke(*shlex.split(command))
        is_one_error = done.err.startswith("error: ") and done.err.count("\n") == 1
        if done.code != 4 or done.out or not is_one_error or message not in done.err:
            wrong[command] = done
    assert wrong == {}
    absent = invoke("mesh", "data=2", "--model", "bert", "--device", "cuda:63")
    assert (absent.code, absent.out, "'cuda:63' not found" in absent.err) == (1, "", True)


ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_closed_pipe_is_no_error():
    for arguments in (["devices", "list"], ["--help"]):
        read, write = os.pipe()
        os.close(read)
        words = [sys.executable, "-m", "hwcompat", *arguments]
        done = subprocess.run(words, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
        os.close(write)
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_matrix_in_a_pipe_has_the_whole_names_of_cells():
    done = start("-m", "hwcompat", "matrix", "--by", "model", "--targets", "cpu,openvino")
    assert done.returncode == 0
    assert "…" not in done.stdout
    assert "audio-spectrogram-transformer/audio-classification/float32" in done.stdout
