"""GroqCards, whose telemetry nobody tells, and Cerebras clusters, which are only said to be configured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_machines import machine

from hardware.errors import UsageError
from hardware.inventory.vendors._lazy_library import Packages
from hardware.inventory.vendors.cerebras import CerebrasAccelerators, ClusterConfig, read_cluster
from hardware.inventory.vendors.groq import GroqAccelerators
from hardware.inventory.vendors.vendor import DriverState, LibraryState
from hardware.machine import LiveMachine
from hardware.recording import MachineRecorder

CONFIG: dict[str, Any] = {
    "currentContext": "here",
    "contexts": [{"name": "here", "cluster": "big"}],
    "clusters": [
        {
            "name": "big",
            "server": "secret.example.com:443",
            "authority": "secret-authority",
            "fabricType": "cs3",
            "namespaces": [{"name": "secret-space", "certificateAuthorityData": "U0VDUkVU"}],
        }
    ],
}


def test_the_cards_of_a_node() -> None:
    backend = GroqAccelerators(machine("groq/groqnode"))
    devices = backend.list_devices()
    assert [one.index for one in devices] == list(range(8))
    assert (devices[0].model, devices[0].device_type, devices[0].pcie_gen) == ("Groq GC1-010B [GroqCard]", "lpu", 4)
    assert devices[0].memory_bytes == 220 * 2**20
    assert "ISCA" in str(devices[0].extra_info["memory_source"])
    assert backend.facts().state == "expected"
    assert backend.get_temperature(0) is None
    assert "nothing known here tells" in backend.told(0, "power").reason


def test_a_card_without_driver_and_the_client_of_the_cloud_is_unusable() -> None:
    backend = GroqAccelerators(machine("groq/card-without-driver"))
    facts = backend.facts()
    assert (facts.driver, facts.library) == (DriverState.MISSING, LibraryState.MISSING)
    assert facts.state == "present but unusable"
    assert "another one" in facts.reason
    assert backend.get_device_count() == 0


def test_no_framework_names_an_lpu_or_a_wafer() -> None:
    for backend in (GroqAccelerators(machine("groq/groqnode")), CerebrasAccelerators(machine("cerebras/user-node"))):
        with pytest.raises(UsageError, match="No framework known here names one"):
            backend.get_framework_device_string(0)


def test_the_cloud_client_is_not_taken_for_the_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "groq").mkdir()
    (tmp_path / "groq" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "another one" in Packages().ask("module", "groq", "runner").reason
    (tmp_path / "groq" / "runner").mkdir()
    assert Packages().ask("module", "groq", "runner").value is True
    assert "no Python module" in Packages().ask("module", "no_such_module").reason
    assert Packages().ask("version", "pytest").value == pytest.__version__


def test_a_cluster_is_said_to_be_configured_and_never_listed() -> None:
    backend = CerebrasAccelerators(machine("cerebras/user-node"))
    facts = backend.facts()
    assert backend.list_devices() == ()
    assert facts.state == "unknown"
    assert facts.library is LibraryState.OK
    assert "CS-3 with a WSE-3 is configured, 2 namespaces" in facts.reason
    assert "isn't reached" in facts.reason


def test_a_user_node_without_the_sdk_says_what_to_install() -> None:
    facts = CerebrasAccelerators(machine("cerebras/user-node-without-sdk")).facts()
    assert facts.state == "library missing"
    assert "CS-2 with a WSE-2 is configured, 1 namespace;" in facts.reason
    assert "pip install cerebras_sdk" in facts.reason


def test_a_configuration_is_reduced_to_what_names_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config"
    file.write_text(json.dumps(CONFIG))
    monkeypatch.setenv("CSCONFIG_PATH", str(file))
    assert ClusterConfig().ask("cluster").value == {"fabric": "cs3", "namespaces": 1}
    recorder = MachineRecorder(LiveMachine())
    CerebrasAccelerators(recorder).facts()
    recorder.write(tmp_path / "kept")
    kept = "".join(one.read_text() for one in (tmp_path / "kept").rglob("*") if one.is_file())
    assert "cs3" in kept
    assert "secret" not in kept
    assert str(file) not in kept


def test_an_older_configuration_means_a_cs2(tmp_path: Path) -> None:
    older = json.loads(json.dumps(CONFIG))
    del older["clusters"][0]["fabricType"]
    assert read_cluster(json.dumps(older), "it").value == {"fabric": "cs2", "namespaces": 1}


@given(
    st.text()
    | st.recursive(
        st.none() | st.integers() | st.text(),
        lambda one: st.lists(one) | st.dictionaries(st.sampled_from([*CONFIG, "name", "cluster"]), one),
    ).map(json.dumps)
)
def test_any_text_is_a_configuration_or_a_reason(text: str) -> None:
    told = read_cluster(text, "it")
    assert (told.value is None) is bool(told.reason)
