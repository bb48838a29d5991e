"""transformers' own tests: the checkout, outcomes, and failures for lack of the network."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from generators.models.catalog import source_names
from hardware.errors import BrokenInput, ModelError, UsageError
from hardware.evidence.record import Outcome
from hwcompat.plugins.triage.upstream.upstream_plugin import Phase, needs_network, outcome_of
from hwcompat.plugins.triage.upstream_command import agree_with_installed, modeling_tests, read_checkout

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


def test_a_checkout_has_the_installed_version(tmp_path):
    agree_with_installed(read_checkout(checkout(tmp_path / "same")))
    other = read_checkout(checkout(tmp_path / "other", "9.8.7"))
    assert other == "9.8.7"
    with pytest.raises(UsageError, match=rf"transformers 9\.8\.7, but {INSTALLED} is installed"):
        agree_with_installed(other)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BrokenInput, match="a checkout of transformers"):
        read_checkout(tmp_path / "empty")


def test_tests_are_found_by_the_name_of_the_type_and_the_folder_of_its_configuration(tmp_path):
    types = {"bert": "bert/test_modeling_bert", "openai-gpt": "openai/test_modeling_openai"}
    types["data2vec-text"] = "data2vec/test_modeling_data2vec_text"
    files = {name: f"tests/models/{file}.py" for name, file in types.items()}
    found = checkout(tmp_path / "a", INSTALLED, *files.values())
    for name, file in files.items():
        assert modeling_tests(found, source_names(name)) == found / file
    with pytest.raises(ModelError, match=r"no file test_modeling_vit\.py"):
        modeling_tests(found, source_names("vit"))
    with pytest.raises(ModelError, match="a source distribution has no tests of models"):
        modeling_tests(checkout(tmp_path / "b"), source_names("bert"))


def phase(outcome: str, when: str = "call", *, network: bool = False) -> Phase:
    return Phase(when=when, outcome=outcome, network=network, message=f"{when} {outcome}")


OK, FAILED, SKIPPED = phase("passed"), phase("failed"), phase("skipped")
SET_UP, TORN_DOWN = phase("passed", "setup"), phase("passed", "teardown")
OFFLINE = phase("failed", network=True)


def test_only_a_test_that_ran_and_was_right_is_a_pass():
    failed = "upstream_test_failed"
    for phases, outcome, error_type in (
        ((SET_UP, OK, TORN_DOWN), Outcome.PASSED, ""),
        ((SET_UP, FAILED, TORN_DOWN), Outcome.FAILED, failed),
        ((phase("failed", "setup"), TORN_DOWN), Outcome.FAILED, failed),
        ((SET_UP, OK, phase("failed", "teardown")), Outcome.FAILED, failed),
        ((phase("skipped", "setup"), TORN_DOWN), Outcome.SKIPPED, "skipped"),
        ((SET_UP, SKIPPED, TORN_DOWN), Outcome.SKIPPED, "skipped"),
        ((SET_UP, OFFLINE, TORN_DOWN), Outcome.NOT_RUN, "needs_network"),
        ((phase("failed", "setup", network=True), TORN_DOWN), Outcome.NOT_RUN, "needs_network"),
        ((SET_UP, OFFLINE, FAILED, TORN_DOWN), Outcome.FAILED, failed),  # a subtest, and the test
        ((SET_UP, FAILED, OK, TORN_DOWN), Outcome.FAILED, failed),
        ((SET_UP, OK, OFFLINE, OK, TORN_DOWN), Outcome.NOT_RUN, "needs_network"),
        ((SET_UP, SKIPPED, SKIPPED, OK, TORN_DOWN), Outcome.SKIPPED, "skipped"),
        ((SET_UP, SKIPPED, OK, OK, TORN_DOWN), Outcome.PASSED, ""),
        ((SET_UP, TORN_DOWN), Outcome.NOT_RUN, "not_reached"),
        ((), Outcome.NOT_RUN, "not_reached"),
    ):
        assert outcome_of(phases)[:2] == (outcome, error_type), phases


def caused(error: BaseException, cause: BaseException | None = None, *, context: BaseException | None = None):
    error.__cause__, error.__context__ = cause, context
    error.__suppress_context__ = cause is not None
    return error


def test_a_missing_network_is_recognized_in_the_chain_of_exceptions():
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    offline = OfflineModeIsEnabled("no")
    assert needs_network(offline)
    assert needs_network(caused(OSError("can't load the tokenizer"), LocalEntryNotFoundError("x")))
    assert needs_network(caused(ValueError("no model"), context=offline))
    assert needs_network(OSError("We couldn't connect to 'https://huggingface.co' to load the files"))
    assert not needs_network(AssertionError("We couldn't connect to 'https://huggingface.co'"))
    assert not needs_network(RuntimeError("device lost"))
    assert not needs_network(caused(RuntimeError("device lost"), ValueError("x"), context=offline))
    # What a device refuses itself is no missing network.
    assert not needs_network(ConnectionRefusedError("the device's daemon is gone"))
    assert not needs_network(FileNotFoundError("kernel.bin"))
