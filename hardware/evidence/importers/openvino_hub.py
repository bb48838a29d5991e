"""OpenVINO: the list of models that `convert_model` is tested with, and tables of supported models.

The list is `tests/model_hub_tests/pytorch/hf_transformers_models`: `name,type` or `name,type,mark,reason` with the
mark `xfail` or `skip` (`models_hub_common/utils.py`). A table is a CSV with a column for the name and one for each of
CPU, GPU and NPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..published import Importer, Row, below, csv_of, files_in, refused, text_of

_MARKS = {"": "pass", "xfail": "fail", "skip": "skip"}
_NAMES = ("model", "model name", "name", "topology", "architecture")
_YES = frozenset({"yes", "y", "true", "1", "+", "x", "✓", "✅", "supported", "pass"})
_NO = frozenset({"no", "n", "false", "0", "-", "✗", "❌", "unsupported", "fail"})


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a list or a table, or of the lists of a folder."""
    for file in files_in(path, "hf_transformers_models"):
        yield from _table(file) if file.suffix == ".csv" else _listed(file)


def _listed(file: Path) -> Iterator[Row]:
    for number, line in enumerate(text_of(file).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, model_type, mark, why, *_ = [*line.strip().split(","), *[""] * 3]
        if mark not in _MARKS or "," not in line:
            raise refused(file, f"line {number} isn't name,type or name,type,mark,reason")
        yield Row(
            source=f"openvinotoolkit/openvino:{below(file, 'tests')}",
            model=name,
            model_type="" if model_type.strip() == "none" else model_type.strip(),
            target="openvino:CPU",
            route="openvino.convert_model",
            precision="float32",
            outcome=_MARKS[mark],
            detail=why,
        )


def _table(file: Path) -> Iterator[Row]:
    for one in csv_of(file):
        values = {name.strip().lower(): value.strip() for name, value in one.items()}
        model = next((values[name] for name in _NAMES if values.get(name)), "")
        devices = [name for name in ("cpu", "gpu", "npu") if name in values]
        if not model or not devices:
            raise refused(file, "it has no column for the model's name, or none of CPU, GPU and NPU")
        for device in devices:
            word = values[device].lower()
            yield Row(
                source=f"openvinotoolkit/openvino:{file.name}",
                model=model,
                target=f"openvino:{device.upper()}",
                route="openvino",
                precision=values.get("precision", "float32").lower(),
                outcome="declared" if word in _YES else "excluded" if word in _NO else "untested",
                detail=values[device],
            )


IMPORTER = Importer(about="a list or table of OpenVINO's supported models", rows=rows, license="Apache-2.0")
