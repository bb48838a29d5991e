"""The name of a target or of a vendor stands in its own file and in data. Other code asks its class for a fact."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from hardware.backends.factory import built_in_targets

ROOT = Path(__file__).parents[2]
PACKAGES = ("hardware", "generators", "reports", "hwcompat")
NAMES = frozenset(built_in_targets()) - {"cpu"}
"""The host isn't a target alone: what stays on the CPU is asked everywhere."""

EXCEPTIONS: Mapping[str, Mapping[str, set[str]]] = {
    "it is the library OpenVINO that is meant, not the target": {
        "accelerators/intel.py": {"openvino"},
        "accelerators/nvidia.py": {"openvino"},
        "contract/test_accelerator.py": {"openvino"},
        "export/exporter.py": {"openvino"},
        "export/openvino.py": {"openvino"},
        "fleet/nodes.py": {"openvino"},
        "repro/script.py": {"openvino"},
    },
    "it is what torch calls a device or a build": {
        "accelerators/apple.py": {"mps"},
        "backends/rocm.py": {"cuda"},
        "evidence/versions.py": {"cuda", "xpu"},
        "hardware/inventory_diff.py": {"cuda", "xpu", "simulated"},
        "hardware/software.py": {"cuda", "rocm", "xpu", "openvino"},
        "optimization/eight_bits.py": {"cuda", "xpu"},
        "optimization/passes.py": {"cuda"},
        "optimization/strategies.py": {"cuda", "mps", "xpu"},
        "stress/devices.py": {"cuda", "simulated"},
    },
    "it is a kind of device, or the word for one that is simulated": {
        "accelerators/base.py": {"simulated", "tpu"},
        "accelerators/google.py": {"tpu"},
        "doctor/diagnosis.py": {"simulated"},
        "stress/report.py": {"simulated"},
    },
    "it is the name of a browser's API, which a worker or a page is asked for": {
        "evidence/page_lines.py": {"webgpu"},
        "web_page/rendering.py": {"webgpu", "webnn"},
        "workers/browsers.py": {"webgpu"},
        "workers/web_worker.py": {"webgpu", "webnn"},
    },
    "it is a part of the target's own code": {
        "backends/_native_webgpu.py": {"webgpu"},
        "backends/_openvino_runnable.py": {"openvino"},
        "backends/_xla_model.py": {"tpu"},
    },
    "it is the name of an environment or of an extra of the package": {
        "hardware/command_names.py": {"openvino", "tpu"},
        "triage/repro_command.py": {"qnn"},
        "workers/onnx_worker.py": {"qnn"},
    },
    "it is public: an enumeration of targets by vendor, and an optimizer for each": {
        "backends/factory.py": set(NAMES),
        "optimization/optimizers.py": {"cuda", "mps", "rocm", "xpu"},
    },
}
"""By the reason, the files (the last two parts of their paths) that may hold names. This list only gets shorter."""


def names_in(path: Path) -> set[str]:
    """Names of targets among the strings of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    strings = {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return strings & NAMES


def test_a_targets_name_stands_in_its_own_file_alone() -> None:
    allowed = {file: names for files in EXCEPTIONS.values() for file, names in files.items()}
    assert len(allowed) == sum(map(len, EXCEPTIONS.values())), "a file has one reason"
    found: dict[str, set[str]] = {}
    for path in (one for package in PACKAGES for one in sorted((ROOT / package).rglob("*.py"))):
        own = {path.stem} if path.parent == ROOT / "hardware" / "backends" else set()
        if names := names_in(path) - own:
            found["/".join(path.parts[-2:])] = names
    assert found == allowed


def test_the_files_that_name_other_targets_get_fewer() -> None:
    assert sum(map(len, EXCEPTIONS.values())) <= 34
