"""Asks functions of the scripts that run in browsers, in Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from hwcompat.plugins.web_page.render_page import SCRIPTS, plain_script

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js isn't here")

PROGRAM = """
const fs = require("fs"), vm = require("vm");
const [script, call] = process.argv.slice(1);
vm.runInThisContext(script);
const numbers = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const read = JSON.parse(fs.readFileSync(0, "utf-8"), (_, value) => numbers[value] ?? value);
const said = (value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);
(async () => {
  let found;
  try { found = await vm.runInThisContext(call)(read); }
  catch (error) { found = { error: error.constructor.name }; }
  process.stdout.write(JSON.stringify(found, (_, value) => said(value)));
  process.exit(0);
})();
"""


def asked(names: str, call: str, given: Any, before: str = "") -> Any:
    """What a function answers, where scripts of these names were read one after the other, behind `before`."""
    paths = {path.name: path for path in SCRIPTS}
    script = "\n".join([before, *(plain_script(paths[name]) for name in names.split())])
    data = (
        json.dumps(given, default=float)
        .replace("NaN", '"nan"')
        .replace("Infinity", '"inf"')
        .replace('-"inf"', '"-inf"')
    )
    command = ["node", "-e", PROGRAM, script, call]
    done = subprocess.run(command, input=data, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
