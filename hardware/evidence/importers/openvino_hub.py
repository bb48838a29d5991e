"""OpenVINO: the list of models that `convert_model` is tested with, and tables of verified models.

The list is `tests/model_hub_tests/pytorch/hf_transformers_models`: `name,type` or `name,type,mark,reason` with the
mark `xfail` or `skip` (`models_hub_common/utils.py`). A table is `docs/sphinx_setup/_static/download/
supported_models*.csv`: a column for the name, one for the precision, and one for each of CPU, GPU and NPU of an Intel
Core Ultra. A marked cell means that inference finished without an error, and an empty one that it wasn't verified:
https://docs.openvino.ai/2025/documentation/compatibility-and-support/supported-models.html
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..published import Importer, Row, below, csv_of, files_in, refused, text_of

_MARKS = {"": "pass", "xfail": "fail", "skip": "skip"}
_RAN = ("+", "passed")


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a list or a table, or of all of a folder."""
    for file in files_in(path, "hf_transformers_models", "supported_models*.csv"):
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
    for one in csv_of(file, "Precision"):
        values = {name.removeprefix("AI PC "): value.strip() for name, value in one.items()}
        model = values.get("Topology") or values.get("Model")
        devices = [name for name in ("CPU", "GPU", "NPU") if name in values]
        if not model or not devices:
            raise refused(file, "it has no column Topology or Model, or none of CPU, GPU and NPU")
        precision, route = values["Precision"].lower(), values.get("Inferred With", "OpenVINO").lower()
        if precision.endswith("default"):  # float32 or int8, by the model's size
            precision, route = "", "optimum intel"
        framework = values.get("Source Framework") or values.get("Framework")
        for device in devices:
            if values[device] not in ("", *_RAN):
                raise refused(file, f"{values[device]!r} is neither empty nor one of {', '.join(_RAN)}")
            yield Row(
                source=f"openvinotoolkit/openvino:{file.name}",
                model=model,
                target=f"openvino:{device}",
                device="Intel Core Ultra",
                route=route.replace(" ", "-"),
                precision=precision,
                outcome="ran_numbers_not_checked" if values[device] else "untested",
                detail=f"from {framework}; {values.get('Last Verified', '')}".rstrip("; "),
            )


IMPORTER = Importer(
    about="a list of OpenVINO's tests or a table of its verified models", rows=rows, license="Apache-2.0"
)
