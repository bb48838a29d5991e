"""Show the telemetry of every device as a live view or as one JSON object per line."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.inventory.telemetry import DeviceSample, HostSample, Sample, Sampler
from hwcompat.hardware.inventory.vendors.vendor import says_simulated
from hwcompat.hardware.plain_text import json_text, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from hwcompat.hardware.inventory.system.processor_telemetry import CpuTelemetry

_CPU = ("cpu", 0)
_WIDE = 150
_BARS_FROM = 80
"""From this width on, bars are drawn beside percentages: throttling and power matter more."""
_WIDE_ALONE = (1, 4)
"""Columns that don't fit a narrow terminal: the model, and earlier samples."""

_HISTORY = 16
_KEPT = 400
_GRAPH_ROWS = 8
_BARS = "▁▂▃▄▅▆▇█"
_HOT_C = 85.0
_BUSY_PERCENT, _FULL_PERCENT = 60.0, 90.0


def samples(sampler: Sampler, *, interval_s: float, duration_s: float | None, count: int | None) -> Iterator[Sample]:
    """Yield a sample every `interval_s` seconds, the first one at once, until `duration_s` or `count` is reached."""
    began = due = time.monotonic()
    taken = 0
    while True:
        yield sampler.sample()
        taken += 1
        due = max(due + interval_s, time.monotonic())  # after a slow driver, missed samples are skipped
        if (count is not None and taken >= count) or (duration_s is not None and due - began > duration_s - 1e-6):
            return
        time.sleep(max(due - time.monotonic(), 0.0))


def monitor(sampler: Sampler, taken: Iterator[Sample], format: str) -> None:
    """Show samples on standard output as they arrive; Ctrl-C ends it without an error. `auto` is `live` on a
    terminal, else `json`."""
    try:
        if format == "json" or (format == "auto" and not sys.stdout.isatty()):
            for sample in taken:
                print(json_text(sample.to_dict(), indent=None), flush=True)
        else:
            _live(taken)
    except KeyboardInterrupt:
        return
    finally:
        sampler.close()


def _live(taken: Iterator[Sample]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout, highlight=False)
    view, drawing = View(), threading.Lock()
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:

            def draw() -> None:
                live.update(view.render(console.width, console.height), refresh=True)

            def press(key: str) -> None:
                if key == "q":  # as Ctrl-C does, also while the next sample is waited for
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                elif key == "?":
                    with drawing:
                        view.help = not view.help
                        draw()

            with _keys(press):
                for sample in taken:
                    with drawing:
                        view.add(sample)
                        draw()
    finally:
        if view.last is not None:  # the last sample stays on the terminal
            console.print(view.render(console.width))


@contextlib.contextmanager
def _keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call `press` with each key while the terminal is a POSIX one; otherwise only Ctrl-C is heard."""
    if os.name != "posix" or sys.stdin is None or not sys.stdin.isatty():  # None: it is closed
        yield
        return
    import termios
    import tty

    terminal, over = sys.stdin.fileno(), threading.Event()
    before = termios.tcgetattr(terminal)

    def listen() -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            while not over.is_set():
                if select.select([terminal], [], [], 0.1)[0] and not over.is_set():
                    if not (key := os.read(terminal, 1)):
                        return
                    press(key.decode(errors="replace"))

    listener = threading.Thread(target=listen, name="keys of the monitor", daemon=True)
    try:
        tty.setcbreak(terminal)
        listener.start()
        yield
    finally:
        over.set()
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


_HELP = """q  stop    ?  hide this help

Temp.         red from 85 °C
Use           time in which the device computed; yellow from 60 %, red from 90 %
Memory        used and total; of the processor, what isn't available to programs
Throttled by  why the clocks are lower than they could be; "no" if they aren't
–             the driver doesn't report it"""


@dataclass
class View:
    """The table of the last sample, with earlier values of each device. `help` says whether the keys and columns are
    explained."""

    history: dict[tuple[str, int], deque[float | None]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_KEPT))
    )
    last: Sample | None = None
    help: bool = False

    def add(self, sample: Sample) -> None:
        """Add the next sample."""
        self.last = sample
        self.history[_CPU].append(sample.host.cpu.compute_percent)
        for device in sample.devices:
            self.history[device.vendor, device.index].append(device.compute_percent)

    def render(self, width: int, height: int | None = None) -> RenderableType:
        """Return at most `height` lines for a terminal of `width` columns, with a note on omitted devices."""
        from rich.console import Group
        from rich.text import Text

        sample = self.last
        if sample is None:
            return Text("waiting for the first sample")
        wide = width >= _WIDE
        bar = 12 if wide else 8 if width >= _BARS_FROM else 0
        table = _table(wide, 1 if bar else 0)
        devices = list(sample.devices)
        room = len(devices) if height is None else max(0, height - 8)
        rows = [*self._host(sample.host, bar), *(self._device(device, bar) for device in devices[:room])]
        for number, cells in enumerate(rows):
            if number == 2:  # after processor and memory
                table.add_section()
            table.add_row(*(_cell(cell) for place, cell in enumerate(cells) if wide or place not in _WIDE_ALONE))
        heading = f"{sample.time[11:19]} UTC, running for {sample.elapsed_s:.0f} s. Keys: q stop, ? help"
        lines: list[Any] = [Text(heading, style="bold", overflow="ellipsis", no_wrap=True), table]
        if len(devices) > room:
            lines.append(Text(f"{len(devices) - room} more devices don't fit this terminal"))
        if not devices:
            lines.append(Text(as_runnable("No accelerators found. Find out why: hwcompat doctor"), style="dim"))
        without_data = [one for one in devices[:room] if one.reason]
        lines += [Text(_plain(f"{one.vendor} {one.index}: {one.reason}"), style="red") for one in without_data]
        lines += [Text(_plain(f"{name}: {why}"), style="yellow") for name, why in sample.vendors.items()]
        if self.help:
            lines.append(Text(_HELP))
        elif height is not None:
            used = len(rows) + 6 + len(lines) - 1  # the table has a head, three rules and a blank line
            lines += self._free_rows(sample, devices[:room], width, height - used)
        return Group(*lines)

    def _free_rows(self, sample: Sample, devices: Sequence[DeviceSample], width: int, free: int) -> Iterator[Any]:
        """Yield at most `free` lines: processes of devices in up to half of them, then graphs of what is used."""
        from rich.text import Text

        named = {_CPU: f"cpu, {sample.host.cpu_model}"}
        named |= {(one.vendor, one.index): f"{one.vendor} {one.index}, {one.model}" for one in devices}
        running = [(one, *process) for one in devices for process in one.processes or ()]
        running.sort(key=lambda process: -(process[2] or 0))
        shown = running[: max(free // 2 - 1, 0)]
        for one, pid, used in shown:
            memory = "memory unknown" if used is None else f"{used / 2**30:.1f} GiB"
            line = f"{one.vendor} {one.index}: process {pid}, {_program(pid)}, {memory}"
            yield Text(_plain(line), overflow="ellipsis", no_wrap=True)
        if len(running) > len(shown) and free > 0:
            yield Text(f"{len(running) - len(shown)} more processes", style="dim")
            free -= 1
        free -= len(shown)
        rows = min(_GRAPH_ROWS, free // len(named) - 1)
        for key, name in named.items() if rows > 0 else ():
            values = list(self.history[key])[-(width - 8) :]
            title = f"{name}: use in the last {len(values)} samples"
            yield Text(_plain(title), style="bold", overflow="ellipsis", no_wrap=True)
            for number, line in enumerate(graph(values, rows)):
                label = "100 %" if number == 0 else "  0 %" if number == rows - 1 else ""
                yield Text(f"{label:>5} │{line}", no_wrap=True)

    def _host(self, host: HostSample, bar: int) -> list[list[Any]]:
        clock = "" if host.cpu.frequency_mhz is None else f"{host.cpu.frequency_mhz / 1000:.2f} GHz"
        model = ", ".join(filter(None, [host.cpu_model or "processor", clock]))
        memory = _memory(host.memory_used_bytes, host.memory_total_bytes, bar)
        return [
            ["cpu", model, *self._row_of(_CPU, host.cpu, "–", bar)],
            ["ram", "main memory", "", "", "", memory, "", host.memory_reason],
        ]

    def _device(self, device: DeviceSample, bar: int) -> list[Any]:
        from rich.text import Text

        simulated = " (simulated)" if device.simulated and not says_simulated(device.model) else ""
        memory = _memory(device.memory_used_bytes, device.memory_total_bytes, bar)
        cells = self._row_of((device.vendor, device.index), device, memory, bar)
        if device.reason:
            cells[-1] = Text("no data: see below", style="red")
        return [f"{device.vendor} {device.index}", f"{device.model}{simulated}", *cells]

    def _row_of(self, key: tuple[str, int], now: CpuTelemetry | DeviceSample, memory: Any, bar: int) -> list[Any]:
        return [
            _temperature(now.temperature_c),
            _percent(now.compute_percent, bar),
            sparkline(list(self.history[key])[-_HISTORY:]),
            memory,
            "–" if now.power_w is None else f"{now.power_w:.0f} W",
            _throttling(now.throttle_reasons),
        ]


def sparkline(values: Iterable[float | None]) -> str:
    """Return percentages as bars of a character each; a gap for an unknown value."""
    last = len(_BARS) - 1
    return "".join(" " if one is None else _BARS[min(last, max(0, round(one / 100 * last)))] for one in values)


def graph(values: Sequence[float | None], rows: int) -> list[str]:
    """Return percentages as lines from the top: a column for each value, empty for 0 % and an unknown one."""
    heights = [round((one or 0) / 100 * rows * len(_BARS)) for one in values]
    steps = f" {_BARS}"
    return [
        "".join(steps[min(max(height - row * len(_BARS), 0), len(_BARS))] for height in heights)
        for row in reversed(range(rows))
    ]


def _program(pid: int) -> str:
    import psutil

    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:  # it ended, or is in another container
        return "unknown program"


def _table(wide: bool, padding: int) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False, padding=(0, padding))
    table.add_column("Device", no_wrap=True)
    if wide:
        table.add_column("Model", overflow="ellipsis", no_wrap=True, max_width=28)
    table.add_column("Temp.", justify="right", no_wrap=True)
    table.add_column("Use", no_wrap=True)
    if wide:
        table.add_column(f"Last {_HISTORY} samples", no_wrap=True, min_width=_HISTORY)
    table.add_column("Memory", no_wrap=True)
    table.add_column("Power", justify="right", no_wrap=True)
    table.add_column("Throttled by", overflow="fold", min_width=24 if wide else None)
    return table


def _cell(content: Any) -> Any:
    """Return text of drivers for a terminal: rich would read `[…]` in plain text as markup."""
    from rich.text import Text

    return Text(_plain(content)) if isinstance(content, str) else content


def _plain(text: str) -> str:
    """Return a text that stays printable if a narrow column breaks it."""
    return printable(text).replace("::", r":\x3a")


def _temperature(celsius: float | None) -> Any:
    from rich.text import Text

    if celsius is None:
        return "–"
    return Text(f"{celsius:.0f} °C", style="bold red" if celsius >= _HOT_C else "")


def _percent(percent: float | None, bar: int) -> Any:
    from rich.text import Text

    if percent is None:
        return "–"
    return Text(f"{_bar(percent, bar)} {percent:3.0f} %".strip(), style=_color(percent))


def _memory(used: int | None, total: int | None, bar: int) -> Any:
    from rich.text import Text

    if used is None or not total:
        return "–"
    percent = 100 * used / total
    text = f"{used / 2**30:.1f}/{total / 2**30:.0f} GiB"
    drawn = f"{_bar(percent, 10)} {percent:3.0f} %" if bar == 12 else _bar(percent, 5 if bar else 0)
    return Text(f"{drawn} {text}".strip(), style=_color(percent))


def _throttling(reasons: tuple[str, ...] | None) -> Any:
    from rich.text import Text

    if reasons is None:
        return "–"
    return Text(_plain(", ".join(reasons)), style="bold red") if reasons else Text("no", style="dim")


def _bar(percent: float, width: int) -> str:
    full = min(width, max(0, round(percent / 100 * width)))
    return "█" * full + "░" * (width - full)


def _color(percent: float) -> str:
    return "red" if percent >= _FULL_PERCENT else "yellow" if percent >= _BUSY_PERCENT else "green"
