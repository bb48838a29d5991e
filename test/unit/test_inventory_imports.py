"""Which modules an inventory imports, and what an installed package adds to it, each asked in a new process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
VENDOR = """
from hardware.accelerator_plugin import AcceleratorBackend

class Chips(AcceleratorBackend):
    VENDOR_NAME, DEVICE_TYPE = "PlugIn", "lpu"
    is_available = lambda self: True
    get_device_count = lambda self: 0
    list_devices = lambda self: ()
"""
CODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from hardware.inventory import vendors
vendors.ACCELERATOR_BACKENDS
after_vendors = set(sys.modules)
from hardware.detection import detect, targets
inventory = detect()
targets(inventory)
print(json.dumps([sorted(after_vendors), sorted(sys.modules), vendors.list_available_vendors(),
                  vendors.accelerator_failures(), {one.vendor: one.reason for one in inventory.vendors}]))
"""


def test_an_inventory_imports_no_framework_and_lists_the_vendor_of_an_installed_package(tmp_path):
    (tmp_path / "chip_package.py").write_text(VENDOR)
    metadata = tmp_path / "chip_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: chip-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[hwcompat.accelerators]\nchip = chip_package:Chips\nlost = no_such_module:Chips\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    after_vendors, after_targets, listed, failures, reasons = json.loads(done.stdout)
    assert not {"pynvml", "torch", "numpy"} & set(after_vendors)
    frameworks = {"torch", "transformers", "openvino", "numpy", "pandas", "jsonschema", "duckdb"}
    assert not frameworks & set(after_targets)
    assert listed[-1] == "PlugIn"
    assert failures["lost"].startswith("ModuleNotFoundError")
    assert "no_such_module" in reasons["lost"]


def test_without_the_folder_there_are_none(tmp_path):
    """In a bundle `hwcompat` has `hwcompat.hardware` alone."""
    (tmp_path / "hwcompat").mkdir()
    (tmp_path / "hwcompat" / "__init__.py").write_bytes((ROOT / "hwcompat" / "__init__.py").read_bytes())
    (tmp_path / "hwcompat" / "hardware").symlink_to(ROOT / "hardware")
    code = "from hwcompat.hardware.plugins import plugins; print(plugins().loaded)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("()\n", 0), done.stderr
