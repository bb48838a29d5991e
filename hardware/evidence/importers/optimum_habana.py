"""Intel Gaudi: the recorded results of passing tests, `tests/baselines/**.json` of optimum-habana.

A file of `fixture` has results by test and device: `{"tests/test_x.py::test[name]": {"gaudi2": {...}}}`; other files
are named after a model and have results by device and task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from ..published import Importer, Row, below, files_in, json_of, refused

_DEVICE = re.compile(r"gaudi\d?")
_PARAMETER = re.compile(r"\[(.+)\]$")
_PRECISION = re.compile(r"(?<![a-z0-9])(bf16|fp8|fp16|fp32|int4|int8)(?![a-z0-9])")


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of one file, or of all files of a folder. Only passing tests have a baseline; one of a
    training has figures of it, such as `train_runtime`."""
    for file in files_in(path, "*.json"):
        data = json_of(file)
        if not isinstance(data, dict) or not data:
            raise refused(file, "it isn't an object of results")
        by_test = data if any("::" in name for name in data) else {file.stem: data}
        for name, by_device in by_test.items():
            parameter = _PARAMETER.search(name)
            for device, figures in by_device.items():
                if _DEVICE.fullmatch(device):
                    precision = _PRECISION.search(name.lower())
                    text = json.dumps(figures)
                    yield Row(
                        source=f"huggingface/optimum-habana:{below(file, 'tests')}",
                        model=parameter[1] if parameter else name.rpartition("::")[2],
                        target="hpu",
                        device=device,
                        route="optimum-habana",
                        precision=precision[1] if precision else "",
                        mode="training" if "train_" in text else "baseline",
                        outcome="pass",
                        detail=text[:120],
                    )


IMPORTER = Importer(about="a baseline of optimum-habana", rows=rows, license="Apache-2.0")
