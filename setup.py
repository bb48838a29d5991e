"""What of the wheel depends on other files: its packages, its data, and what it asks for (see `pyproject.toml`)."""

from __future__ import annotations

import re
import tempfile
import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
FLOORS = ("hardware", "generators", "reports", "hwcompat")
DATA = ("toml", "json", "j2", "html", "css", "js", "mjs", "ini", "gz", "txt", "typed")
"""Kinds of files that are no Python and belong to the product; a test holds the wheel against what git keeps."""


def tested_versions(name: str) -> dict[str, str]:
    """The pinned versions of a file of requirements, by package."""
    return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8")))


def extras(table: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """The extras in the tested versions: `table` says which packages of which files, and which other extras."""
    found: dict[str, list[str]] = {}
    for extra, parts in table.items():
        pins = [one for other in parts.get("extras", ()) for one in found[other]]
        for name, packages in parts.items():
            if name != "extras":
                pins += [f"{package}=={tested_versions(name)[package]}" for package in packages]
        found[extra] = pins
    return found


def needed(table: dict[str, dict[str, list[str]]], oldest: dict[str, str]) -> list[str]:
    """What everything needs: the packages of `requirements.txt` that no extra brings."""
    brought = {package for parts in table.values() for package in parts.get("requirements.txt", ())}
    pins = tested_versions("requirements.txt")
    return [f"{name}>={oldest.get(name, pin)}" for name, pin in pins.items() if name not in brought]


def main() -> None:
    """Hand setuptools what it can't read from `pyproject.toml`."""
    own = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hwcompat"]
    data = [f"**/*.{suffix}" for suffix in DATA]
    with tempfile.TemporaryDirectory(prefix="hwcompat-build-") as fresh:  # what an earlier one left stays out
        setup(
            packages=[*find_packages(include=[*FLOORS, *(f"{floor}.*" for floor in FLOORS)]), "generators.templates"],
            package_dir={"generators.templates": "templates"},
            package_data=dict.fromkeys((*FLOORS, "generators.templates"), data),
            include_package_data=False,
            py_modules=["run_test_generation", "hardware_compatibility_reporter"],
            install_requires=needed(own["extras"], own["oldest"]),
            extras_require=extras(own["extras"]),
            options={"build": {"build_base": fresh}},
        )


main()
