"""Numerical libraries from wheels and system folders, and container engines.

Software adapters of browsers are recognized by their names, and never count as a GPU.
"""

from __future__ import annotations

from recorded_machines import changed

from hardware.inventory.system.system_libraries import read_container_engines, read_libraries
from hardware.machine import SourceReading
from hardware.recording import ReplayedMachine
from hardware.software import adapter_conditions, adapter_name, is_software, other_adapter


def test_a_wheel_precedes_a_file_and_a_single_number_is_no_version(tmp_path):
    files = {
        "/usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.7": "",
        "/usr/lib/x86_64-linux-gnu/libcublas.so.12.4.5": "",
        "/usr/lib64/libmagma.so.2": "",
        "/usr/lib/libcufftw.so.11": "",
        "/System/Library/Frameworks/Accelerate.framework/x": "",
    }
    here = changed(
        "machines/vm-virtio",
        tmp_path,
        index=lambda index: index.update(packages={"nvidia-cudnn-cu12": "9.1.0"}),
        files=files,  # type: ignore[arg-type]
    )
    assert {one.name: (one.version, one.source) for one in read_libraries(here)} == {
        "Accelerate": (None, "/System/Library/Frameworks/Accelerate.framework"),
        "MAGMA": (None, "/usr/lib64"),
        "cuBLAS": ("12.4.5", "/usr/lib/x86_64-linux-gnu"),
        "cuDNN": ("9.1.0", "nvidia-cudnn-cu12"),
    }


def test_container_engines_are_listed_with_their_version_if_they_state_one(tmp_path):
    class WithDocker(ReplayedMachine):
        def may_open(self, path: str) -> bool | None:
            return True if path in ("/usr/bin/docker", "/snap/bin/podman") else None

        def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
            return SourceReading(value="Docker version 27.3.1, build ce12230" if words[0] == "docker" else None)

    here = WithDocker(changed("machines/vm-virtio", tmp_path).folder)
    found = [(one.name, one.version, one.path) for one in read_container_engines(here)]
    assert found == [("Docker", "27.3.1", "/usr/bin/docker"), ("Podman", None, "/snap/bin/podman")]
    assert read_container_engines(ReplayedMachine(here.folder)) == ()


def test_software_adapters_are_recognized_by_any_of_their_names():
    for adapter in (
        {"vendor": "google", "architecture": "swiftshader"},
        {"vendor": "mesa", "description": "llvmpipe (LLVM 17.0.6, 256 bits)"},
        {"vendor": "google", "device": "0x0000C0DE"},
        {"vendor": "microsoft", "device": "0x8c"},
        {"vendor": "nvidia", "fallback": True},
    ):
        assert is_software(adapter), adapter
        assert adapter_name(adapter).endswith(" (software)")
        assert "a software adapter" in adapter_conditions(adapter)["stands_in"]
    for adapter in ({"vendor": "nvidia", "architecture": "ampere"}, {"vendor": "warpdrive"}, {}):
        assert not is_software(adapter), adapter
        assert "stands_in" not in adapter_conditions(adapter)


def test_an_adapter_is_called_by_what_is_known_of_it():
    assert adapter_name({"vendor": "nvidia", "architecture": "ampere", "description": "x"}) == "nvidia ampere"
    assert adapter_name({"description": "A card"}) == adapter_name({"device": "A card"}) == "A card"
    assert adapter_conditions({"vendor": "nvidia"}) == {"adapter": "nvidia"}
    assert "requested" in adapter_conditions({})


def test_a_pass_on_another_adapter_does_not_count():
    described = {"vendor": "nvidia", "architecture": "ampere"}
    assert other_adapter(described, {**described}) == other_adapter(None, described) == ""
    assert other_adapter(described, None) == ""
    assert "ran on intel, but nvidia ampere was described" in other_adapter(described, {"vendor": "intel"})
