"""The program in this process: `invoke` runs a line of it."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwcompat.cli.main_program import main

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Invoked:
    """The exit code of a line, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its standard output, read as JSON. Fails if that is none."""
        assert self.out, self.err
        return json.loads(self.out)


def invoke(*words: object) -> Invoked:
    """Run a line of `hwcompat`, such as `invoke("run", "--model", "bert")`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Invoked(code=code, out=out.getvalue(), err=err.getvalue())
