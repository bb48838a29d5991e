"""Loads for real: what is computed is right, what is broken is seen, and the commands say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import CommandLine, Ran, together

from hardware.detection import probe_apart
from hwcompat.plugins.stress import stress_child
from hwcompat.plugins.stress.disk_reads import PATTERNS, WRITES, Blocks
from hwcompat.plugins.stress.load_devices import TorchDevice
from hwcompat.plugins.stress.loads import (
    KERNELS,
    Copy,
    Products,
    Stream,
    WrongResult,
    copy_sizes,
    product_sizes,
    require_full_float32,
    suitable,
)
from hwcompat.plugins.stress.stress_child import SUSTAINED, StressOptions, stress_ram, sustain
from hwcompat.plugins.stress.tensorflow_device import why_not_loaded

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

REPOSITORY = Path(__file__).parents[2]
SCHEMA = json.loads((REPOSITORY / "hardware" / "schemas" / "stress.json").read_text(encoding="utf-8"))
SHORT = ("--duration", "0.2", "--warmup", "0", "--interval", "0.1", "--precision", "float32", "--format", "json")


def stress(command_line: CommandLine, folder: Path, *words: str, **environment: str) -> Ran:
    return command_line.python(folder, "-m", "hardware", "stress", *words, *SHORT, env=environment)


@pytest.fixture(scope="module")
def runs(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """The simulated device as it is and broken in three ways, each in a process of its own."""
    folder = tmp_path_factory.mktemp("stress")

    def broken(kind: str, *more: str) -> Any:
        return lambda: stress(command_line, folder / kind, "simulated", *more, HWCOMPAT_SIMULATED_FAULT=kind)

    return together(
        {
            "sound": lambda: stress(command_line, folder / "sound", "simulated"),
            "wrong": broken("wrong"),
            "host": broken("host"),
            "crash": broken("crash"),
            "hang": broken("hang", "--timeout", "3"),
        }
    )


def result(ran: Ran) -> dict[str, Any]:
    (found,) = json.loads(ran.out)["results"]
    return found  # type: ignore[no-any-return]


def test_a_sound_device_is_measured_and_told_by_schema(runs: dict[str, Ran]) -> None:
    ran = runs["sound"]
    assert ran.code == 0, ran.err
    found = result(ran)
    jsonschema.validate(json.loads(ran.out), SCHEMA)
    assert found["ending"] == "measured"
    assert found["simulated"]
    assert found["tflops"] > 0
    assert found["rates"][0]["products"] > 0
    assert found["bandwidths"][0]["gbps"] > 0
    assert found["stability"]["slices"] > 0
    assert ran.network == []


def test_a_broken_device_has_no_rate_and_fails(runs: dict[str, Ran]) -> None:
    for kind, ending, word in (
        ("wrong", "wrong_result", "float32"),
        ("host", "offloaded", "launched no product"),
        ("crash", "failed", "signal 6"),
        ("hang", "timeout", "no output for too long"),
    ):
        found = result(runs[kind])
        assert runs[kind].code == 1
        assert (found["ending"], found["tflops"], found["rates"]) == (ending, None, [])
        assert word in found["reason"]


def test_a_named_device_that_isnt_here_is_skipped_and_fails(
    command_line: CommandLine, tmp_path: Path, without_cuda: None
) -> None:
    ran = stress(command_line, tmp_path, "cuda:0")
    assert ran.code == 1
    assert result(ran)["ending"] == "skipped"
    assert result(ran)["reason"]


def products(precision: str, size: int = 128) -> Products:
    made = Products(TorchDevice("cpu"), precision, size)
    made.verify()
    return made


def test_a_wrong_product_is_detected() -> None:
    for precision in ("float32", "bfloat16", "float16", "int8"):
        made = products(precision)
        made.forget()
        made.run(2)
        made.check()
        made.result[3, 5] += 50  # a typical value
        with pytest.raises(WrongResult):
            made.check()
    made = products("float32")
    made.forget()
    with pytest.raises(WrongResult):  # it isn't computed
        made.check()
    made.result.fill_(float("nan"))
    with pytest.raises(WrongResult):
        made.check()
    for spoiled in (1.0, float("nan")):
        made = products("float32")
        made.exact[7, 7] += spoiled
        with pytest.raises(WrongResult, match="factors"):
            made.verify()


def test_fewer_bits_than_float32_are_seen() -> None:
    class Halved(TorchDevice):
        """A device whose inputs are rounded as bfloat16 units round them."""

        def put(self, array: Any, precision: str = "") -> Any:
            return super().put(array, precision).bfloat16().float()

    require_full_float32(TorchDevice("cpu"))
    with pytest.raises(WrongResult, match="fewer bits"):
        require_full_float32(Halved("cpu"))


def test_the_width_grows_until_one_product_takes_long() -> None:
    on = TorchDevice("cpu")
    assert product_sizes(2**25)[-1] == 512  # as many as memory holds
    assert copy_sizes(2**30)[-1] <= 2**26
    chosen, seconds = suitable(lambda size: Products(on, "float32", size), product_sizes(2**25), 1e9)
    assert chosen.size == 512
    assert seconds > 0
    smallest, _ = suitable(lambda size: Products(on, "float32", size), product_sizes(2**40), 0)
    assert smallest.size == 128


def test_every_kernel_of_stream_and_a_copy_are_checked() -> None:
    for kernel in KERNELS:
        stream = Stream(2**20)
        stream.use(kernel)
        stream.forget()
        stream.run(2)
        stream.check()
        stream.a[12345] += 1
        with pytest.raises(WrongResult, match=kernel):
            stream.check()
        stream.run(1)
        stream.forget()
        with pytest.raises(WrongResult):
            stream.check()
    copy = Copy(TorchDevice("cpu"), 2**16)
    copy.run(1)
    copy.check()
    copy.result[5] = -7
    with pytest.raises(WrongResult, match="1 wrong"):
        copy.check()


def test_blocks_of_a_disk_are_written_and_read_and_wrong_ones_are_found(tmp_path: Path) -> None:
    file = tmp_path / "blocks"
    file.write_bytes(bytes(2**21))
    for pattern in PATTERNS:
        try:
            blocks = Blocks(file, pattern)
        except OSError:
            pytest.skip("this filesystem has no direct reads")
        blocks.forget()
        blocks.run(5)
        blocks.check()
        if pattern.name == WRITES:
            assert any(file.read_bytes())
            with file.open("r+b") as opened:
                opened.write(bytes(2**21))
            with pytest.raises(WrongResult, match="as it was written"):
                blocks.check()
        else:
            file.write_bytes(bytes(1000))
            blocks.run(5)
            with pytest.raises(WrongResult, match="shorter"):
                blocks.check()
            file.write_bytes(bytes(2**21))
        blocks.close()


def test_a_disk_is_measured_by_a_temporary_file_that_is_gone_afterwards(
    command_line: CommandLine, tmp_path: Path
) -> None:
    done = stress(command_line, tmp_path, "storage", "--write", HWCOMPAT_CACHE=str(tmp_path))
    measured = [one for one in json.loads(done.out)["results"] if one["ending"] == "measured"]
    if not measured:
        pytest.skip("no disk here has a writable folder and direct reads")
    for one in measured:
        assert [load["kernel"] for load in one["bandwidths"]] == [pattern.name for pattern in PATTERNS]
        assert one["bandwidth_gbps"] > 0
    assert not list(tmp_path.rglob("hwcompat-stress-*"))


@pytest.mark.extended
def test_tensorflow_loads_a_device(command_line: CommandLine, tmp_path: Path) -> None:
    if why := why_not_loaded("cpu"):
        pytest.skip(f"{why}: make setup-tensorflow")
    done = stress(command_line, tmp_path, "cpu", "--library", "tensorflow")
    (result,) = json.loads(done.out)["results"]
    assert result["ending"] == "measured", result["reason"]
    assert result["library"].startswith("tensorflow 2.")
    assert result["tflops"] > 0


def test_main_memory_is_loaded_with_four_kernels_triad_sustained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stress_child, "stream_bytes", lambda caches, free: (2**22, ""))
    said: list[dict[str, Any]] = []
    task = StressOptions(target="ram", warmup_s=0.05, duration_s=0.3)
    stress_ram(task, lambda event, **values: said.append({"event": event, **values}))
    assert [one["phase"] for one in said if one["event"] == "phase"] == [
        "warm-up",
        "sustained",
        "short",
        "short",
        "short",
    ]
    bandwidths = {one["kernel"]: one for one in said if one["event"] == "bandwidth"}
    assert set(bandwidths) == set(KERNELS)
    assert bandwidths["triad"]["work"] == 3 * 2**22
    assert all(one["calls"] > 0 for one in bandwidths.values())


def test_every_slice_is_checked() -> None:
    class Third(Stream):
        """A load whose third result is wrong."""

        checks = 0

        def check(self) -> None:
            self.checks += 1
            if self.checks == 3:
                raise WrongResult("off")

    load = Third(2**16)
    with pytest.raises(WrongResult):
        sustain(load, 0.001, SUSTAINED, 60, lambda *_, **__: None)
    assert load.checks == 3


def test_the_doctor_reports_a_hang_a_crash_and_a_sound_device(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = probe_apart("cpu", timeout_s=0.01)
    assert not slow.ok
    assert slow.reason.startswith("it took longer than 0.01 s")
    monkeypatch.setenv("HWCOMPAT_SIMULATED_FAULT", "crash")
    crashed = probe_apart("simulated", timeout_s=120)
    assert not crashed.ok
    assert "signal 6" in crashed.reason
    found = probe_apart("cpu", timeout_s=120)
    assert found.ok, found.reason
    assert found.got is not None
