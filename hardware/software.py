"""Installed software, read without importing it: the host, package versions, and the build of torch."""

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
"""Packages on which evidence depends."""

FRAMEWORKS = (
    *("accelerate", "bionemo", "deepspeed", "einops", "einx", "fairscale", "jax", "keras", "lightning", "matplotlib"),
    *("mxnet", "numba", "pandas", "peft", "polars", "pytorch-lightning", "scikit-learn", "scipy", "tensorflow"),
    *("tensorrt", "triton", "vllm", "wandb", "xgboost", "zarr"),
)
"""Other packages that compute with models or data."""

_LIBRARIES = Path(__file__).with_name("libraries.toml")


@dataclass(frozen=True, kw_only=True)
class HostInfo:
    """The operating system and the running Python, without host name and paths."""

    system: str
    release: str
    machine: str
    python_version: str


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """The build of torch, from its `version.py`. `version` is None if it isn't installed.

    `cuda`, `hip` and `xpu` are the versions of those runtimes, None if the build lacks them.
    """

    version: str | None = None
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None
    reason: str = ""

    @property
    def local(self) -> str:
        """Return the part of the version that names the build (`cpu`, `cu128`, `rocm6.4`), or an empty text."""
        return (self.version or "").partition("+")[2]

    @property
    def kind(self) -> str:
        """Return `rocm`, `cuda`, `xpu` or `cpu`, or `none` without torch. A HIP build isn't a CUDA build."""
        if self.version is None:
            return "none"
        return next(
            (name for name, built in (("rocm", self.hip), ("cuda", self.cuda), ("xpu", self.xpu)) if built),
            "cpu",
        )


def read_host() -> HostInfo:
    """Return the facts of this host."""
    return HostInfo(
        system=platform.system(),
        release=platform.release(),
        machine=platform.machine(),
        python_version=platform.python_version(),
    )


def package_versions(names: Iterable[str] = PACKAGES, places: Iterable[str] | None = None) -> dict[str, str | None]:
    """Return installed versions by distribution name, None for packages that aren't in the folders `places` (by
    default, those where Python searches for modules).

    Versions come from the names of metadata folders (`numpy-2.4.6.dist-info`, a packaging standard): searching for
    each of sixty names takes as long as the whole inventory.
    """
    installed: dict[str, str] = {}
    for place in sys.path if places is None else places:
        with contextlib.suppress(OSError):  # it isn't a folder
            for entry in os.listdir(place or "."):
                if found := _METADATA.fullmatch(entry):
                    installed.setdefault(_normalized(found["name"]), found["version"])
    return {name: installed.get(_normalized(name)) for name in names}


_METADATA = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist-info|egg-info)")


def _normalized(name: str) -> str:
    """Return the normalized name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_installed(module: str) -> bool:
    """Return whether a top-level module can be found, without importing it."""
    if module in sys.modules:
        return sys.modules[module] is not None
    return importlib.util.find_spec(module) is not None


def read_torch_build() -> TorchBuild:
    """Return the build of the torch that `import torch` would import."""
    if not is_installed("torch"):
        return TorchBuild(reason="torch isn't installed: pip install torch")
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return TorchBuild(reason="torch is an empty folder")
    return parse_torch_version(Path(spec.origin).with_name("version.py"))


def parse_torch_version(path: Path) -> TorchBuild:
    """Return the build in a `torch/version.py`, which is parsed and never run."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        return TorchBuild(reason=f"torch/version.py can't be read: {type(error).__name__}")
    values = dict(re.findall(r"""(?m)^(__version__|cuda|hip|xpu)\b[^=\n]*=\s*["']([^"'\n]*)["']""", text))
    if "__version__" not in values:
        return TorchBuild(reason="torch/version.py has no version")
    return TorchBuild(
        version=values["__version__"],
        cuda=values.get("cuda"),
        hip=values.get("hip"),
        xpu=values.get("xpu"),
    )


def places() -> dict[str, Any]:
    """Return where libraries and container engines are searched for: `folders`, `programs`, `engines`."""
    found: dict[str, Any] = data_file(_LIBRARIES)["places"]
    return found


def known_libraries() -> list[dict[str, Any]]:
    """Return the libraries that frameworks compute with, from `libraries.toml`."""
    found: list[dict[str, Any]] = data_file(_LIBRARIES)["library"]
    return found


def library_wheels() -> tuple[str, ...]:
    """Return the distributions that contain them."""
    return tuple(wheel for one in known_libraries() for wheel in one.get("wheels", ()))


SOFTWARE_ADAPTERS = (
    *("swiftshader", "llvmpipe", "lavapipe", "softpipe", "swrast", "software rasterizer", "software renderer"),
    *("warp", "basic render driver", "google 0xc0de", "microsoft 0x8c"),
)
"""Lower-case words in names of software adapters: Google's SwiftShader, Mesa's rasterizers (which Chromium's list
of software rendering names too) and Microsoft's WARP; the last two entries are vendor and device, which don't
change with other settings. Paravirtual adapters (Apple's, Mesa's Venus) use the host's driver, whose name is
part of that of Venus, so that llvmpipe is found."""

TOLD = ("vendor", "architecture", "device", "description")
"""The texts in which a browser describes an adapter; each may be empty."""

NAMELESS = "an adapter without a name"


def is_software(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> bool:
    """Return whether an adapter is a fallback or has the name of a software adapter."""
    vendor, architecture, device, description = (str(adapter.get(name, "")) for name in TOLD)
    device = re.sub("^0x0+", "0x", device.lower())
    words = f"{vendor} {architecture} {device} {description}\n{vendor} {device}".lower()
    found = (re.search(f"(^|[^a-z0-9]){re.escape(name)}([^a-z0-9]|$)", words) for name in names)
    return bool(adapter.get("fallback")) or any(found)


def adapter_name(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> str:
    """Return the name of an adapter for reports; software adapters are named as such."""
    maker = " ".join(str(adapter[name]) for name in ("vendor", "architecture") if adapter.get(name))
    known = maker or str(adapter.get("description") or adapter.get("device") or NAMELESS)
    return f"{known}{' (software)' if is_software(adapter, names) else ''}"


def adapter_conditions(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> dict[str, str]:
    """Return the conditions of a computation on an adapter: an unnamed one may be software, which doesn't prove a
    GPU."""
    name = adapter_name(adapter, names)
    if is_software(adapter, names):
        kind = adapter.get("architecture") or adapter.get("description") or "fallback"
        return {"adapter": name, "stands_in": f"a software adapter ({kind}), not a GPU"}
    if name == NAMELESS:
        return {"adapter": name, "requested": "the browser's own choice of adapter, of which it tells no name"}
    return {"adapter": name}


def other_adapter(described: Mapping[str, Any] | None, ran: Mapping[str, Any] | None) -> str:
    """Return why a pass on the adapter `ran` doesn't count for the adapter `described`; empty if they are the same
    or the runtime reports none."""
    if described is None or ran is None:
        return ""
    if all(described.get(name) == ran.get(name) for name in (*TOLD, "fallback")):
        return ""
    return f"ran on {adapter_name(ran)}, but {adapter_name(described)} was described"
