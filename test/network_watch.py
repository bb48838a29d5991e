"""Keeps a command, and whatever it starts, from reaching beyond this machine, and notes each attempt.

`python network_watch.py LOG COMMAND…`. The kernel asks this process before each system call that names the other end
of a connection (seccomp's user notification), so that C libraries, browsers, node and DuckDB are watched as Python
is. What is loopback goes on; anything else gets "network is unreachable" and a line in LOG. It takes no privileges.
It is meant for programs that mean no harm: memory that a thread changes between the question and the call isn't seen,
nor what a process sends that was running before and is asked over a local socket (look-ups by the system's resolver
are).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import ipaddress
import json
import os
import platform
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

LOG_VARIABLE = "TEST_NETWORK_LOG"
"""Names the log of the watch that this process is under."""

WATCHER_VARIABLE = "TEST_NETWORK_WATCHER"
"""The id of the process that watches."""

WHY_VARIABLE = "TEST_NETWORK_UNWATCHED"
"""Says why this process is under no watch, although one was asked for."""

QUIETING = (
    *("CI", "NNCF_CI", "DO_NOT_TRACK", "DISABLE_TELEMETRY", "ORT_DISABLE_TELEMETRY"),
    *("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"),
)
"""Variables that keep a library from the network. No test has them: the product has to see to it itself."""

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 38, 36
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 8, 32
_RECEIVE, _SEND, _STILL_THERE = 0xC0502100, 0xC0182101, 0x40082102
_CONTINUE = 1
_ALLOW, _ASK, _REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_AF_UNSPEC, _AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 0, 1, 2, 10, 16
_DNS = 53
_RESOLVERS = ("/run/systemd/resolve/", "/run/avahi-daemon/")
_NAME_CACHE = "/run/nscd/socket"
"""Refused and not noted: it is asked for users too, and without it a process makes its look-ups itself."""

_PROBE = ("2001:4860:4860::8888 port 443", "network.mojom.NetworkService")
"""Refused and not noted: every Chromium asks the kernel for a route to this address before it connects anywhere, to
learn whether there is IPv6. It does so by connecting a datagram socket, which sends nothing, and no switch keeps it
from that (net/dns/host_resolver_manager.cc, StartIPv6ReachabilityCheck)."""


@dataclass(frozen=True)
class _Processor:
    """How the kernel calls a processor, and the numbers of its system calls."""

    audit: int
    seccomp: int
    connect: int
    sendto: int
    sendmsg: int
    sendmmsg: int


_PROCESSORS = {
    "x86_64": _Processor(0xC000003E, 317, 42, 44, 46, 307),
    "aarch64": _Processor(0xC00000B7, 277, 203, 206, 211, 269),
}
_IO_URING_SETUP = 425


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A try to reach beyond this machine: the call, what it named, and who made it, from itself to its ancestors."""

    call: str
    address: str
    command: str
    processes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.call} {self.address} by {self.command}"


class NotWatched(Exception):
    """Says why nothing can be watched here."""


def network_log() -> Path:
    """The log of the watch that this process is under."""
    return Path(os.environ[LOG_VARIABLE])


def read_attempts(log: Path, *, below: int | None = None) -> list[Attempt]:
    """The attempts in a log, in their order; with `below` those of that process and of what it started."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    found = [Attempt(**{**row, "processes": tuple(row["processes"])}) for row in map(json.loads, lines)]
    return [one for one in found if below is None or below in one.processes]


def is_watched() -> bool:
    """Whether this process is under a watch."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return LOG_VARIABLE in os.environ and "Seccomp:\t2" in status
    return False


def is_watched_first() -> bool:
    """Whether this process is the one that the watch was started for, and nobody's child below it."""
    return is_watched() and os.environ.get(WATCHER_VARIABLE) == str(os.getppid())


def why_not_watched() -> str:
    """Why this process can be under no watch; empty where it can, or is."""
    if is_watched():
        return ""
    try:
        _processor()
    except NotWatched as error:
        return str(error)
    return os.environ.get(WHY_VARIABLE, "")


def foreign(address: bytes, *, connects: bool) -> str:
    """What a socket address names, where that isn't this machine's loopback; empty where it is, or nobody's.

    A look-up counts wherever it is asked: port 53, and the sockets of systemd's and Avahi's resolvers.
    """
    if len(address) < 2:
        return ""
    family = int.from_bytes(address[:2], sys.byteorder)
    if family == _AF_UNIX:
        path = address[2:].split(b"\0", 1)[0].decode(errors="replace")
        return f"look-up at {path}" if any(part in path for part in (*_RESOLVERS, _NAME_CACHE)) else ""
    if family == _AF_NETLINK or (family == _AF_UNSPEC and connects):  # the kernel itself; ends a connection
        return ""
    if family in (_AF_INET, _AF_UNSPEC) and len(address) >= 8:
        host: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.IPv4Address(address[4:8])
    elif family == _AF_INET6 and len(address) >= 24:
        host = ipaddress.IPv6Address(address[8:24])
        host = host.ipv4_mapped or host
    else:
        return f"family {family}: {address.hex()}"
    port = int.from_bytes(address[2:4], "big")
    if port == _DNS:
        return f"look-up at {host}"
    return "" if host.is_loopback or host.is_unspecified else f"{host} port {port}"


def watch(log: Path, command: Sequence[str]) -> int:
    """Run a command under the watch; returns its exit code, as a shell tells it. Raises `NotWatched`."""
    processor = _processor()
    supported = threading.Event()
    given: list[int] = []
    server = threading.Thread(target=lambda: supported.wait() and _serve(given[0], processor, log), daemon=True)
    server.start()  # before the filter, which holds for threads and processes that start after it
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whose memory is read has to be a descendant
    given.append(_install(processor))
    supported.set()
    told = {LOG_VARIABLE: str(log), WATCHER_VARIABLE: str(os.getpid())}
    child = subprocess.Popen(command, env=os.environ | told, preexec_fn=_die_with_parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells both
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _processor() -> _Processor:
    found = _PROCESSORS.get(platform.machine())
    if sys.platform != "linux" or found is None:
        raise NotWatched(f"the watch is written for Linux on {' and '.join(_PROCESSORS)}")
    return found


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _install(processor: _Processor) -> int:
    """Put this thread, and what it starts, under the filter; returns the descriptor that questions come to."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = _filter(processor)
    kept = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(kept)))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):  # the former since Linux 5.19
        listener = libc.syscall(processor.seccomp, _SET_MODE_FILTER, flags, program)
        if listener >= 0:
            return int(listener)
    why = os.strerror(ctypes.get_errno())
    raise NotWatched(f"the kernel gives no notifications of seccomp: {why}")


def _filter(processor: _Processor) -> bytes:
    """The program in the kernel's own bytecode: which calls are asked about."""
    asked = (processor.connect, processor.sendmsg, processor.sendmmsg)
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, processor.audit),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),  # another architecture's calls have other numbers
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, 0x40000000),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),  # x32, likewise
        (_EQUAL, 0, 1, _IO_URING_SETUP),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),  # it would connect without a call
    ]
    for number in asked:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ASK)]
    steps += [
        (_EQUAL, 1, 0, processor.sendto),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, 48),  # its fifth argument, the address: both halves of the pointer
        (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, 52),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _ASK),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("@HBBI", *step) for step in steps)


def _serve(listener: int, processor: _Processor, log: Path) -> None:
    """Answer the kernel's questions until nobody is left who could ask."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    try:
        while True:
            ((_, event),) = poll.poll()
            if not event & select.POLLIN:
                return
            question = bytearray(80)
            with contextlib.suppress(OSError):  # who asked is gone
                fcntl.ioctl(listener, _RECEIVE, question, True)
                _answer(listener, question, processor, log)
    finally:
        os.close(listener)  # whoever asks now is refused, and doesn't wait for ever


def _answer(listener: int, question: bytes, processor: _Processor, log: Path) -> None:
    """Let a call go on, or refuse it and note it. Raises `OSError` where its process is gone."""
    number, thread, _ = struct.unpack_from("@QII", question)
    call, _, _, *arguments = struct.unpack_from("@iIQ6Q", question, 16)
    try:
        named = list(_foreign_of(thread, call, arguments, processor))
    except (OSError, struct.error) as error:
        named = [f"(its memory can't be read: {error})"]
    fcntl.ioctl(listener, _STILL_THERE, struct.pack("@Q", number))  # else what was read may be another's
    for address in named:
        _note(log, thread, call, address, processor)
    refused = -errno.ENETUNREACH if named else 0
    fcntl.ioctl(listener, _SEND, struct.pack("@QqiI", number, 0, refused, 0 if named else _CONTINUE))


def _foreign_of(thread: int, call: int, arguments: Sequence[int], processor: _Processor) -> Iterator[str]:
    """What a call names that isn't this machine."""
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
    try:
        for pointer, length in _addresses(memory, call, arguments, processor):
            if not pointer:
                continue
            address = os.pread(memory, min(length, 128), pointer)
            if found := foreign(address, connects=call == processor.connect):
                yield found
    except OSError as error:
        if error.errno != errno.EIO:  # a bad pointer: the kernel says so itself
            raise
    finally:
        os.close(memory)


def _addresses(memory: int, call: int, arguments: Sequence[int], processor: _Processor) -> Iterator[tuple[int, int]]:
    """Pointers to the socket addresses of a call, each with its length in bytes."""
    if call == processor.connect:
        yield arguments[1], arguments[2] & 0xFFFFFFFF
    elif call == processor.sendto:
        yield arguments[4], arguments[5] & 0xFFFFFFFF
    else:
        count = 1 if call == processor.sendmsg else min(arguments[2] & 0xFFFFFFFF, 1024)
        for place in range(count):  # msghdr, or an array of them with what was sent behind each
            head = os.pread(memory, 16, arguments[1] + 64 * place)
            yield struct.unpack_from("@QI", head)


def _note(log: Path, thread: int, call: int, address: str, processor: _Processor) -> None:
    names = {getattr(processor, name): name for name in ("connect", "sendto", "sendmsg", "sendmmsg")}
    command = ""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{thread}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    if address.endswith(_NAME_CACHE) or (address == _PROBE[0] and _PROBE[1] in command):
        return
    one = Attempt(call=names[call], address=address, command=command[:300], processes=tuple(_ancestry(thread)))
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(one)) + "\n")


def _ancestry(thread: int) -> Iterator[int]:
    """The process of a thread, its parent, and so on."""
    with contextlib.suppress(OSError):
        field = "Tgid"
        while thread > 0:
            lines = Path(f"/proc/{thread}/status").read_text(errors="replace").splitlines()
            values = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            thread, field = int(values[field]), "PPid"
            if thread:
                yield thread


def main() -> int:
    """Run what stands on the command line under the watch, and without it where there can be none, saying so."""
    log, command = Path(sys.argv[1]).absolute(), sys.argv[2:]
    try:
        return watch(log, command)
    except NotWatched as error:
        print(f"not watched: {error}", file=sys.stderr)
        return subprocess.run(command, env=os.environ | {WHY_VARIABLE: str(error)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
