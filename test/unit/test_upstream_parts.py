"""transformers' own tests: the device's file, the checkout, and what an outcome is worth."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from generators.models.catalog import source_names
from hardware.backends import factory
from hardware.backends._torch import TorchBackend
from hardware.backends.factory import resolve_target
from hardware.errors import BrokenInput, ModelError, UsageError
from hardware.evidence.record import Outcome
from hardware.target import Target
from hwcompat.plugins.triage.upstream.device_spec import spec_name, spec_text, torch_backend
from hwcompat.plugins.triage.upstream.upstream_plugin import Phase, needs_network, outcome_of
from hwcompat.plugins.triage.upstream_command import agree_with_installed, modeling_tests, read_checkout

ROOT = Path(__file__).parents[2]
INSTALLED = importlib.metadata.version("transformers")


def checkout(folder: Path, version: str = INSTALLED, *files: str) -> Path:
    for name, text in {
        "src/transformers/__init__.py": f'__version__ = "{version}"\n',
        **dict.fromkeys(files, ""),
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


# The file that names the device


@pytest.mark.parametrize("name", ["cpu", "cuda", "rocm", "mps", "xpu", "simulated"])
def test_every_torch_target_has_a_file_that_parses_and_names_it(name):
    text = spec_text(resolve_target(name))
    names = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    functions = {"MANUAL_SEED_FN", "EMPTY_CACHE_FN", "DEVICE_COUNT_FN"}
    assert f'get_backend("{name}")' in text
    assert names == (set() if name == "cpu" else functions)  # of the host's kind there is no accelerator


def test_the_file_of_the_simulated_device_registers_it_where_it_is_imported(tmp_path):
    target = resolve_target("simulated")
    (tmp_path / spec_name(target)).write_text(spec_text(target))
    code = f"""
import {spec_name(target).removesuffix(".py")} as spec, torch
made = torch.ones(2, device=spec.DEVICE_NAME)
spec.MANUAL_SEED_FN(3)
first = torch.rand(2)
spec.MANUAL_SEED_FN(3)
print(made.device, spec.DEVICE_COUNT_FN(), spec.EMPTY_CACHE_FN(), torch.equal(first, torch.rand(2)))
"""
    env = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.stdout.split(), done.returncode) == (["simulated:0", "1", "None", "True"], 0), done.stderr


@pytest.mark.skipif(not factory.get_backend("cuda").unavailable(), reason="a CUDA device is here")
def test_the_file_of_a_device_that_is_not_here_says_why(tmp_path):
    with pytest.raises(Exception, match=r"cuda can't be used: .*CUDA"):
        exec(spec_text(resolve_target("cuda")), {})


def test_a_plug_ins_device_has_a_file_too(monkeypatch):
    class Chip(TorchBackend):
        BACKEND_NAME = DEVICE_TYPE = "chip"

    monkeypatch.setattr(factory.TARGETS, "added", lambda: {"chip": SimpleNamespace(load=lambda: Chip)})
    text = spec_text(resolve_target("chip"))
    assert 'get_backend("chip")' in text
    assert "DEVICE_COUNT_FN" in text


@pytest.mark.parametrize("name", ["openvino", "qnn"])
def test_a_target_that_is_no_device_of_torch_is_refused(name):
    with pytest.raises(UsageError, match=f"can't run on {name}"):
        torch_backend(Target(name=name))


def test_one_of_several_devices_is_refused():
    assert torch_backend(Target.parse("cuda:0")).DEVICE_TYPE == "cuda"
    with pytest.raises(UsageError, match="without an index"):
        torch_backend(Target.parse("cuda:1"))


# The checkout


def test_the_version_is_read_from_the_source(tmp_path):
    assert read_checkout(checkout(tmp_path / "a", "9.8.7")) == "9.8.7"
    (tmp_path / "c").mkdir()
    with pytest.raises(BrokenInput, match="no checkout of transformers"):
        read_checkout(tmp_path / "c")


def test_another_version_than_the_installed_one_is_refused_with_both_named(tmp_path):
    agree_with_installed(read_checkout(checkout(tmp_path / "same")))
    with pytest.raises(UsageError, match=rf"transformers 9\.8\.7, and {INSTALLED} is installed"):
        agree_with_installed(read_checkout(checkout(tmp_path / "other", "9.8.7")))


def test_tests_are_found_by_the_types_name_and_by_where_its_configuration_lies(tmp_path):
    bert, openai, text = (
        f"tests/models/{name}.py"
        for name in ("bert/test_modeling_bert", "openai/test_modeling_openai", "data2vec/test_modeling_data2vec_text")
    )
    found = checkout(tmp_path, INSTALLED, bert, openai, text)
    assert modeling_tests(found, source_names("bert")) == tmp_path / bert
    assert modeling_tests(found, source_names("openai-gpt")) == tmp_path / openai
    assert modeling_tests(found, source_names("data2vec-text")) == tmp_path / text
    with pytest.raises(ModelError, match=r"no file test_modeling_vit\.py"):
        modeling_tests(found, source_names("vit"))


def test_a_source_distribution_is_told_from_a_checkout(tmp_path):
    found = checkout(tmp_path)
    with pytest.raises(ModelError, match="a source distribution has no tests of models"):
        modeling_tests(found, source_names("bert"))


# What an outcome is worth


def phase(outcome: str, when: str = "call", *, network: bool = False) -> Phase:
    return Phase(when=when, outcome=outcome, network=network, message=f"{when} {outcome}")


OK, FAILED, SKIPPED = phase("passed"), phase("failed"), phase("skipped")
SET_UP, TORN_DOWN = phase("passed", "setup"), phase("passed", "teardown")
OFFLINE = phase("failed", network=True)


@pytest.mark.parametrize(
    ("phases", "outcome", "error_type"),
    [
        ((SET_UP, OK, TORN_DOWN), Outcome.PASSED, ""),
        ((SET_UP, FAILED, TORN_DOWN), Outcome.FAILED, "upstream_test_failed"),
        ((phase("failed", "setup"), TORN_DOWN), Outcome.FAILED, "upstream_test_failed"),
        ((SET_UP, OK, phase("failed", "teardown")), Outcome.FAILED, "upstream_test_failed"),
        ((phase("skipped", "setup"), TORN_DOWN), Outcome.SKIPPED, "skipped"),
        ((SET_UP, SKIPPED, TORN_DOWN), Outcome.SKIPPED, "skipped"),
        ((SET_UP, OFFLINE, TORN_DOWN), Outcome.NOT_RUN, "needs_network"),
        ((phase("failed", "setup", network=True), TORN_DOWN), Outcome.NOT_RUN, "needs_network"),
        ((SET_UP, OFFLINE, FAILED, TORN_DOWN), Outcome.FAILED, "upstream_test_failed"),  # a subtest, and the test
        ((SET_UP, FAILED, OK, TORN_DOWN), Outcome.FAILED, "upstream_test_failed"),
        ((SET_UP, OK, OFFLINE, OK, TORN_DOWN), Outcome.NOT_RUN, "needs_network"),
        ((SET_UP, SKIPPED, SKIPPED, OK, TORN_DOWN), Outcome.SKIPPED, "skipped"),
        ((SET_UP, SKIPPED, OK, OK, TORN_DOWN), Outcome.PASSED, ""),
        ((SET_UP, TORN_DOWN), Outcome.NOT_RUN, "not_reached"),
        ((), Outcome.NOT_RUN, "not_reached"),
    ],
)
def test_only_what_ran_and_was_right_is_a_pass(phases, outcome, error_type):
    assert outcome_of(phases)[:2] == (outcome, error_type)


def caused(error: BaseException, cause: BaseException | None = None, *, context: BaseException | None = None):
    error.__cause__, error.__context__ = cause, context
    error.__suppress_context__ = cause is not None
    return error


def test_the_network_is_told_by_the_exceptions_in_the_chain():
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    offline = OfflineModeIsEnabled("no")
    assert needs_network(offline)
    assert needs_network(caused(OSError("can't load the tokenizer"), LocalEntryNotFoundError("x")))
    assert needs_network(caused(ValueError("no model"), context=offline))
    assert needs_network(OSError("We couldn't connect to 'https://huggingface.co' to load the files"))
    assert not needs_network(AssertionError("We couldn't connect to 'https://huggingface.co'"))
    assert not needs_network(RuntimeError("device lost"))
    assert not needs_network(caused(RuntimeError("device lost"), ValueError("x"), context=offline))


def test_a_device_that_refuses_a_connection_of_its_own_is_no_missing_network():
    assert not needs_network(ConnectionRefusedError("the device's daemon is gone"))
    assert not needs_network(FileNotFoundError("kernel.bin"))


def test_the_file_can_be_printed_and_written(tmp_path):
    from click.testing import CliRunner

    from hardware.__main__ import main

    printed = CliRunner().invoke(main, ["device-spec", "nvidia"])
    assert printed.output == spec_text(Target(name="cuda"))
    path = tmp_path / "spec.py"
    assert CliRunner().invoke(main, ["device-spec", "simulated", "--output", str(path)]).exit_code == 0
    assert path.read_text() == spec_text(Target(name="simulated"))
    assert isinstance(CliRunner().invoke(main, ["device-spec", "qnn"]).exception, UsageError)
