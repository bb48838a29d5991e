"""A cluster of four nodes on loopback: cells run where their target is, a node that is killed costs nothing but time,
and what can't run is said and never passed over."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import CommandLine, Ran
from network_watch import is_watched
from ray_cluster_of_nodes import LocalCluster
from suites_by_hand import wait_until

from hardware.evidence.record import Outcome
from hardware.evidence.store import Evidence, read_folder

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray isn't installed: make setup-ray", allow_module_level=True)

pytestmark = pytest.mark.slow

MODELS = ("bert", "gpt2", "vit", "t5", "roberta")
ROUTES = {"look-up at 8.8.8.8", "look-up at 2001:4860:4860::8888"}


TAKES_ITS_WORKER = """

def test_takes_its_worker(case):
    import os, pathlib, signal, time

    runner = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(runner.rpartition(")")[2].split()[1]), signal.SIGKILL)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, command_line: CommandLine) -> Iterator[LocalCluster]:
    found = LocalCluster(command_line.environment(tmp_path_factory.mktemp("cluster")))
    try:
        for target in ("cpu", "cpu", "simulated", "simulated"):
            found.add_node({target: 1})
        yield found
    finally:
        found.close()


@pytest.fixture(autouse=True)
def _routes_alone(network) -> Iterator[None]:
    """Ray's own processes ask the kernel for a route by connecting a datagram socket, which sends nothing; else they
    reach nothing either, and our processes reach nothing at all."""
    yield
    if is_watched():
        left = network.take()
        assert {one.address for one in left} <= ROUTES
        assert [str(one) for one in left if "ray" not in one.command or "run_test_generation" in one.command] == []


Start = Callable[..., "Running"]


class Running:
    """A driver at work on the cluster."""

    def __init__(self, command_line: CommandLine, cluster: LocalCluster, folder: Path, *words: str) -> None:
        self.folder = folder
        self._command_line = command_line
        ray = ("--run", "--distributed", "ray", "--address", cluster.address)
        self.process = command_line.start(folder, *words, *ray, env=cluster.variables)

    def wait(self) -> Ran:
        return self._command_line.wait(self.process, self.folder)

    @property
    def evidence(self) -> Evidence:
        folder = self.folder / "evidence"
        return read_folder(folder) if folder.is_dir() else Evidence(runs=(), checks=(), ends=(), broken=())


@pytest.fixture
def start(command_line: CommandLine, cluster: LocalCluster, tmp_path: Path) -> Iterator[Start]:
    started: list[Running] = []

    def begin(*words: str) -> Running:
        started.append(Running(command_line, cluster, tmp_path, *words))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def words(models: tuple[str, ...], *devices: str) -> list[str]:
    return [word for name in models for word in ("--model", name)] + [w for d in devices for w in ("--device", d)]


def test_a_killed_nodes_cells_run_elsewhere_and_none_is_lost_or_doubled(cluster: LocalCluster, start: Start) -> None:
    running = start(*words(MODELS, "cpu", "simulated"))
    doomed = cluster.nodes[0]
    lost = wait_until(lambda: doomed.begun() if running.evidence.ends else {}, running.process)
    cluster.kill(doomed)
    done = running.wait()
    assert done.code == 0, done.err
    found = done.evidence
    cells = [one.cell_id for run in found.runs for one in run.plan]
    assert len(cells) == 10
    assert max(Counter(cells).values()) == 1
    assert max(Counter((line.cell_id, line.check_name) for line in found.checks).values()) == 1
    assert {line.outcome for line in found.checks} == {Outcome.PASSED}
    nodes: dict[str, set[str]] = {"cpu": set(), "simulated": set()}
    for run in found.runs:
        nodes[run.plan[0].cell_id.split("/")[2]].add(run.node)
    assert len(nodes["simulated"]) == 2
    assert not nodes["cpu"] & nodes["simulated"]
    left = {run_id: cell for run_id, cell in lost.items() if run_id not in {run.run_id for run in found.runs}}
    assert left, "the node had a cell that wasn't home yet"
    by_cell = {one.cell_id: run for run in found.runs for one in run.plan}
    survivor = by_cell[max(by_cell, key=lambda cell: by_cell[cell].started_at if "/cpu/" in cell else "")].node
    assert {by_cell[cell].node for cell in left.values()} == {survivor}
    assert all(one.verdict and one.verdict["level"] for run in found.runs for one in run.plan), "sealed"
    assert done.network == []


def test_a_missing_resource_is_known_before_the_start_and_others_run(cluster: LocalCluster, start: Start) -> None:
    done = start(*words(("bert",), "cpu", "mps")).wait()
    assert done.code == 1
    before, _, after = done.err.partition("no node offers mps")
    assert "passed" not in before
    assert "ray start" in after
    assert f"--address={cluster.address}" in after
    assert set(done.outcomes("bert/fill-mask/cpu/float32").values()) == {Outcome.PASSED}
    lines = done.lines("bert/fill-mask/mps/float32").values()
    assert {(line.outcome, line.error_type) for line in lines} == {(Outcome.NOT_RUN, "no_node")}
    assert done.verdict("bert/fill-mask/mps/float32") == "unknown"


@pytest.mark.extended
def test_a_cell_that_takes_its_worker_along_is_never_a_pass(
    cluster: LocalCluster, start: Start, command_line: CommandLine, tmp_path: Path
) -> None:
    """An edited suite is sent as it lies there."""
    assert command_line.run(tmp_path, *words(("bert", "gpt2"), "simulated")).code == 0
    suite = tmp_path / "suites" / "test_bert_fill_mask_simulated_float32.py"
    suite.write_text(suite.read_text() + TAKES_ITS_WORKER)
    done = start(*words(("bert", "gpt2"), "simulated")).wait()
    assert done.code == 1
    lines = done.lines("bert/fill-mask/simulated/float32")
    assert {(line.outcome, line.error_type) for line in lines.values()} == {(Outcome.NOT_RUN, "node_lost")}
    assert "takes_its_worker" in lines
    assert "after 3 attempts" in lines["takes_its_worker"].error_message
    assert set(done.outcomes("gpt2/text-generation/simulated/float32").values()) == {Outcome.PASSED}


@pytest.mark.extended
def test_a_killed_driver_leaves_what_was_seen_and_the_next_goes_on(cluster: LocalCluster, start: Start) -> None:
    running = start(*words(MODELS[:4], "simulated"))
    wait_until(lambda: running.evidence.ends, running.process)
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    first = running.evidence
    assert 0 < len(first.ends) < 4
    done = start(*words(MODELS[:4], "simulated"), "--resume").wait()
    assert done.code == 0, done.err
    assert f"{len(first.ends)} cell(s) are done, {4 - len(first.ends)} run" in done.err
    cells = Counter(one.cell_id for run in done.evidence.runs for one in run.plan)
    assert len(cells) == 4
    assert max(cells.values()) == 1
    assert max(Counter((line.cell_id, line.check_name) for line in done.evidence.checks).values()) == 1


@pytest.mark.extended
def test_when_the_last_node_of_a_target_is_lost_its_cells_are_not_run(cluster: LocalCluster, start: Start) -> None:
    running = start(*words(MODELS[:3], "simulated"))
    before = {run for node in cluster.nodes[2:4] for run in node.begun()}
    wait_until(lambda: all(node.begun().keys() - before for node in cluster.nodes[2:4]), running.process)
    for node in cluster.nodes[2:4]:
        cluster.kill(node)
    done = running.wait()
    assert done.code == 1
    outcomes = {(line.outcome, line.error_type) for line in done.evidence.checks}
    assert (Outcome.NOT_RUN, "node_lost") in outcomes
    assert Outcome.CRASHED not in {outcome for outcome, _ in outcomes}
    cells = Counter(one.cell_id for run in done.evidence.runs for one in run.plan)
    assert len(cells) == 3
    assert max(cells.values()) == 1
    assert "the last node that offered simulated was lost" in done.err


def test_without_an_answer_it_ends_at_once(command_line: CommandLine, tmp_path: Path) -> None:
    ray = ("--run", "--distributed", "ray", "--address", "127.0.0.1:1")
    done = command_line.run(tmp_path, *words(("bert",), "cpu"), *ray)
    assert done.code == 4
    assert "no Ray cluster answers at '127.0.0.1:1'" in done.error
