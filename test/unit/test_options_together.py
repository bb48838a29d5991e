"""Options that make no sense together are refused with a next step, before anything is done."""

from __future__ import annotations

import shlex

from click.testing import CliRunner

from run_test_generation import main

REFUSED = {
    "--hardware-compatibility --backlog qnn": "two jobs",
    "--calibration --coverage-report": "two jobs",
    "--hardware-compatibility --model brt": "'brt' isn't a row of the matrix",
    "--hardware-compatibility --model bert --by family": "--by family shows groups",
    "--calibration --model bert": "--model doesn't go with --calibration",
    "--backlog qnn --device qnn": "--device doesn't go with --backlog",
    "--hardware-compatibility --baseline pyproject.toml --fail-on ''": "given and empty",
    "--hardware-compatibility --targets ,": "given and empty",
    "--model bert --fail-on error": "--fail-on goes with --run",
    "--model bert --run --fail-on eror": "'eror' is not a severity. Did you mean 'error'?",
    "--model bert --run --fail-on error,info": "several severities",
    "--model bert --baseline pyproject.toml": "--baseline goes with",
    "--config h.toml --run --fail-on error": "a project file says itself",
    "--model bert --no-redact": "--no-redact goes with --run",
    "--model bert --run --address 127.0.0.1:6379": "--address goes with --distributed",
    "--model bert --distributed ray": "--distributed goes with --run",
    "--model bert --bundle x.zip --distributed ray": "--distributed goes with --run",
    "--model bert --run --distributed ray --jobs 2": "--jobs doesn't go with --distributed",
    "--model bert --run --distributed ray --machine x": "each node names its own machine",
    "--model bert --run --distributed ray --no-redact": "before they send anything",
    "--model bert --host lab": "--host goes with --run, --list or --list-devices",
    "--model bert --run --host lab --distributed ray": "--host doesn't go with --distributed",
    "--refresh --host lab": "--host doesn't go with --refresh",
    "--model bert --run --host lab --no-redact": "redacted where it is written",
    "--model bert --run --host-checkpoint w": "--host-checkpoint goes with --host",
    "--model bert --run --host -oProxyCommand=x": "is no host",
    "--mesh data=2 --model bert --run": "--mesh is a job of its own",
    "--mesh auto --refresh": "two jobs",
    "--mesh data=2": "--mesh is about one model",
    "--mesh dta=2 --model bert": "'dta' is no axis of a mesh. Did you mean 'data'?",
    "--mesh data=2 --model bert --device openvino": "'openvino' is no device for a mesh",
    "--mesh data=2 --model bert --device cuda:63": "'cuda:63' isn't here",
    "--mesh data=2 --model bert --format html": "--mesh gives text or json",
    "--model bert --bundle x.zip --format json": "--format doesn't go with --bundle",
    "--model bert --list --format csv": "printed as a table or as json, not as csv",
    "--model bert --run --format html": "in the folder of --report-dir",
}


def test_options_that_do_not_go_together_are_refused() -> None:
    answers = {}
    for command in REFUSED:
        done = CliRunner().invoke(main, shlex.split(command), standalone_mode=False)
        answers[command] = str(done.exception)
    assert {command: answer for command, answer in answers.items() if REFUSED[command] not in answer} == {}
