"""What the front doors import, and what goes on where optional packages are missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from front_doors import ROOT


def test_both_doors_open_and_import_no_framework(tmp_path):
    code = (
        "import runpy, sys\n"
        "sys.argv = ['x', '--matrix', '--collect-all', '--format', 'json']\n"
        "try:\n"
        f"    runpy.run_path({str(ROOT / 'test' / 'hardware_compatibility_reporter.py')!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    heavy = {'torch', 'transformers', 'openvino', 'duckdb', 'pandas'} & set(sys.modules)\n"
        "    print(end.code, sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["models_tested"] == []
    assert done.stderr.splitlines()[-1] == "0 []"


def test_help_imports_nothing_but_the_front_door():
    code = (
        "import sys; import hardware_compatibility_reporter as door; door.main(['--help'])\n"
        "print(sorted(n for n in sys.modules if n.partition('.')[0] in ('hardware', 'generators', 'reports')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "--check-model" in done.stdout
    told = (
        *("errors", "evidence", "evidence.address", "evidence_place", "front_door", "own_commands", "paths"),
        *("plain_text", "plugins", "registry"),
    )
    allowed = [
        "hardware",
        *(f"hardware.{one}" for one in told),
        "reports",
        "reports.formats",
        "reports.formats",
        "reports.report_request",
    ]
    assert done.stdout.splitlines()[-1] == str(allowed)


def test_it_goes_on_without_torch_transformers_and_openvino(tmp_path):
    import click
    import numpy
    import packaging
    import platformdirs
    import psutil
    import tabulate

    few = tmp_path / "few"
    few.mkdir()
    for module in (click, numpy, packaging, platformdirs, psutil, tabulate):
        folder = Path(module.__file__).parent
        for path in (folder, folder.with_name(f"{folder.name}.libs")):
            if path.exists():
                (few / path.name).symlink_to(path)
    arguments = ["--collect-all", "--test-hardware", "--matrix", "--check-model", "bert", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-S", str(ROOT / "hardware_compatibility_reporter.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(few)},
    )
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    missing = {name for name, part in data["components_available"].items() if part["state"] == "missing"}
    assert {"torch", "transformers", "openvino"} <= missing
    assert data["hardware_stack"]["cpu"]["state"] == "absent"
    assert data["matrix"]["compatibility"]["vision"]["cuda"]["level"] == "high"
    assert "transformers is not installed" in data["model_checks"][0]["cause"]
