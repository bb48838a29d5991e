"""Qualcomm AI Hub: `perf.yaml`, `manifest.yaml` and the scorecard's `accuracy.csv` of the package qai-hub-models.

Layout: https://github.com/quic/ai-hub-models, `configs/perf_yaml.py`. Every device is a real one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..published import Importer, Row, csv_of, files_in, yaml_of

_SOURCE = "pypi:qai-hub-models"


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of one file, or of all files of a package or checkout."""
    for file in files_in(path, "perf.yaml", "manifest.yaml", "accuracy.csv"):
        if file.suffix == ".csv":
            yield from _accuracy(file)
        elif "precisions" in (data := yaml_of(file)):
            yield from _measured(file, data)
        else:
            yield from _disabled(file, data)


def _measured(file: Path, data: Mapping[str, Any]) -> Iterator[Row]:
    for precision, details in data["precisions"].items():
        for component, measured in (details.get("components") or {}).items():
            for device, by_route in (measured.get("performance_metrics") or {}).items():
                for route, one in by_route.items():
                    yield Row(
                        source=f"{_SOURCE}:models/{file.parent.name}/perf.yaml",
                        model=f"{file.parent.name}/{component}",
                        target="qnn",
                        device=device,
                        route=route,
                        precision=measured.get("precision") or precision,
                        outcome=_outcome(one),
                        detail=_detail(one),
                    )


def _outcome(one: Mapping[str, Any]) -> str:
    if one.get("job_status", "Passed") != "Passed":
        return "fail"
    layers = one.get("layer_counts")
    if not layers:
        return "metrics_only"
    if layers.get("npu", 0) == layers["total"]:
        return "pass"
    return "pass_partial" if one.get("primary_compute_unit") == "NPU" else "pass_on_host"


def _detail(one: Mapping[str, Any]) -> str:
    memory = one.get("estimated_peak_memory_range_mb") or {}
    versions = " ".join(f"{name}={version}" for name, version in (one.get("tool_versions") or {}).items())
    figures = {
        "layers": one.get("layer_counts"),
        "ms": one.get("inference_time_milliseconds"),
        "mem_mb": f"{memory['min']}-{memory['max']}" if memory else None,
    }
    known = " ".join(f"{name}={value}" for name, value in figures.items() if value is not None)
    return f"{one.get('primary_compute_unit') or ''} {known} {versions}".strip()


def _disabled(file: Path, data: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the paths that AI Hub doesn't offer, with its reason. Which device failed isn't stated."""
    for precision, by_route in (data.get("disabled_paths") or {}).items():
        for route, why in by_route.items():
            yield Row(
                source=f"{_SOURCE}:models/{file.parent.name}/manifest.yaml",
                model=file.parent.name,
                target="qnn",
                route=route,
                precision=precision,
                outcome="fail" if "scorecard_failure" in why else "excluded",
                detail="; ".join(map(str, why.values())),
            )


def _accuracy(file: Path) -> Iterator[Row]:
    needed = ("model_id", "precision", "runtime", "Torch Accuracy", "Device Accuracy", "chipset", "metric_threshold")
    for one in csv_of(file, *needed):
        if not (one["Torch Accuracy"] and one["Device Accuracy"] and one["metric_threshold"]):
            continue
        torch, device = float(one["Torch Accuracy"]), float(one["Device Accuracy"])
        lost = torch - device if one.get("metric_higher_is_better", "True") == "True" else device - torch
        yield Row(
            source=f"{_SOURCE}:scorecard/intermediates/accuracy.csv",
            model=one["model_id"],
            target="qnn",
            device=one["chipset"],
            route=one["runtime"],
            precision=one["precision"],
            mode="accuracy",
            outcome="wrong_numbers" if lost > float(one["metric_threshold"]) else "pass",
            detail=f"{one.get('metric_name', 'accuracy')} {device:g} on the device, {torch:g} in torch",
        )


IMPORTER = Importer(about="a result file of Qualcomm AI Hub", rows=rows, license="BSD-3-Clause")
