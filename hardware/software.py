"""What is installed, read without importing any of it: the host, package versions and the build of torch."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .values import data_file

PACKAGES = (
    *("torch", "transformers", "openvino", "optimum-intel", "nncf", "numpy", "safetensors", "pytest"),
    *("onnx", "onnxruntime", "diffusers"),
)
"""What evidence depends on."""

FRAMEWORKS = (
    *("accelerate", "bionemo", "deepspeed", "einops", "einx", "fairscale", "jax", "keras", "lightning", "matplotlib"),
    *("mxnet", "numba", "pandas", "peft", "polars", "pytorch-lightning", "scikit-learn", "scipy", "tensorflow"),
    *("tensorrt", "triton", "vllm", "wandb", "xgboost", "zarr"),
)
"""What else people compute models and data with."""

_LIBRARIES = Path(__file__).with_name("libraries.toml")


@dataclass(frozen=True, kw_only=True)
class HostInfo:
    """The operating system and the Python that runs. Holds no host name and no path."""

    system: str
    release: str
    machine: str
    python_version: str


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """What torch was built for, as its `version.py` says. `version` is `None` when it isn't installed.

    `cuda`, `hip` and `xpu` are the versions of those runtimes, `None` where the build lacks them.
    """

    version: str | None = None
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None
    reason: str = ""

    @property
    def local(self) -> str:
        """The part of the version that names the build (`cpu`, `cu128`, `rocm6.4`), empty without one."""
        return (self.version or "").partition("+")[2]

    @property
    def kind(self) -> str:
        """`rocm`, `cuda`, `xpu` or `cpu`; `none` without torch. A HIP build is no CUDA build."""
        if self.version is None:
            return "none"
        return next(
            (name for name, built in (("rocm", self.hip), ("cuda", self.cuda), ("xpu", self.xpu)) if built),
            "cpu",
        )


def read_host() -> HostInfo:
    """Facts of this host."""
    return HostInfo(
        system=platform.system(),
        release=platform.release(),
        machine=platform.machine(),
        python_version=platform.python_version(),
    )


def package_versions(names: Iterable[str] = PACKAGES, places: Iterable[str] | None = None) -> dict[str, str | None]:
    """Installed versions by distribution name, `None` for what isn't in the folders `places`, where Python looks for
    modules unless others are named.

    They are those in the names of the folders that hold a distribution's metadata, as the packaging standard has it
    (`numpy-2.4.6.dist-info`): of sixty names, a search for each takes as long as the whole inventory.
    """
    installed: dict[str, str] = {}
    for place in sys.path if places is None else places:
        with contextlib.suppress(OSError):  # what isn't a folder holds none
            for entry in os.listdir(place or "."):
                if found := _METADATA.fullmatch(entry):
                    installed.setdefault(_normalised(found["name"]), found["version"])
    return {name: installed.get(_normalised(name)) for name in names}


_METADATA = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist-info|egg-info)")


def _normalised(name: str) -> str:
    """The form in which two spellings of a distribution's name are one (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_installed(module: str) -> bool:
    """Whether a top-level module can be found; it isn't imported."""
    if module in sys.modules:
        return sys.modules[module] is not None
    return importlib.util.find_spec(module) is not None


def read_torch_build() -> TorchBuild:
    """The build of the torch that `import torch` would take."""
    if not is_installed("torch"):
        return TorchBuild(reason="torch isn't installed: pip install torch")
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return TorchBuild(reason="what is found as torch is an empty folder")
    return parse_torch_version(Path(spec.origin).with_name("version.py"))


def parse_torch_version(path: Path) -> TorchBuild:
    """The build that a `torch/version.py` names. The file is parsed and never run."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        return TorchBuild(reason=f"torch/version.py can't be read: {type(error).__name__}")
    values = dict(re.findall(r"""(?m)^(__version__|cuda|hip|xpu)\b[^=\n]*=\s*["']([^"'\n]*)["']""", text))
    if "__version__" not in values:
        return TorchBuild(reason="torch/version.py names no version")
    return TorchBuild(
        version=values["__version__"],
        cuda=values.get("cuda"),
        hip=values.get("hip"),
        xpu=values.get("xpu"),
    )


def places() -> dict[str, Any]:
    """Where libraries and engines of containers are looked for: `folders`, `programs`, `engines`."""
    found: dict[str, Any] = data_file(_LIBRARIES)["places"]
    return found


def known_libraries() -> list[dict[str, Any]]:
    """The libraries that frameworks compute with, as `libraries.toml` has them."""
    found: list[dict[str, Any]] = data_file(_LIBRARIES)["library"]
    return found


def library_wheels() -> tuple[str, ...]:
    """The distributions that bring them."""
    return tuple(wheel for one in known_libraries() for wheel in one.get("wheels", ()))


SOFTWARE_ADAPTERS = (
    *("swiftshader", "llvmpipe", "lavapipe", "softpipe", "swrast", "software rasterizer", "software renderer"),
    *("warp", "basic render driver", "google 0xc0de", "microsoft 0x8c"),
)
"""What is in their names as whole words, in small letters: Google's SwiftShader, Mesa's rasterizers (those that
Chromium's list of software rendering names too), Microsoft's WARP; the last two are vendor and device, which stay the
same whatever else is told. A paravirtual adapter (Apple's, Mesa's Venus) isn't among them: it hands its work to the
host's driver, and Venus has that driver's name in its own, so that llvmpipe behind it is found."""

TOLD = ("vendor", "architecture", "device", "description")
"""What a browser tells of an adapter in words; each may be empty."""

NAMELESS = "an adapter without a name"


def is_software(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> bool:
    """Whether an adapter says that it is a fallback, or has one of the names of software."""
    vendor, architecture, device, description = (str(adapter.get(name, "")) for name in TOLD)
    device = re.sub("^0x0+", "0x", device.lower())
    words = f"{vendor} {architecture} {device} {description}\n{vendor} {device}".lower()
    found = (re.search(f"(^|[^a-z0-9]){re.escape(name)}([^a-z0-9]|$)", words) for name in names)
    return bool(adapter.get("fallback")) or any(found)


def adapter_name(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> str:
    """What reports call an adapter; software is called so."""
    told = " ".join(str(adapter[name]) for name in ("vendor", "architecture") if adapter.get(name))
    known = told or str(adapter.get("description") or adapter.get("device") or NAMELESS)
    return f"{known}{' (software)' if is_software(adapter, names) else ''}"


def adapter_conditions(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> dict[str, str]:
    """The conditions of what an adapter computed: one that isn't named may be software, and proves no GPU."""
    name = adapter_name(adapter, names)
    if is_software(adapter, names):
        kind = adapter.get("architecture") or adapter.get("description") or "fallback"
        return {"adapter": name, "stands_in": f"a software adapter ({kind}), not a GPU"}
    if name == NAMELESS:
        return {"adapter": name, "requested": "the browser's own choice of adapter, of which it tells no name"}
    return {"adapter": name}


def other_adapter(described: Mapping[str, Any] | None, ran: Mapping[str, Any] | None) -> str:
    """Why a pass on the adapter `ran` proves nothing of the one that was `described`; empty where they are the same,
    or where the runtime tells of none."""
    if described is None or ran is None:
        return ""
    if all(described.get(name) == ran.get(name) for name in (*TOLD, "fallback")):
        return ""
    return f"{adapter_name(ran)} computed, and {adapter_name(described)} was described"
