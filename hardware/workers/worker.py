"""`Worker`: a process of another Python that stays alive for several calls and is ended by its own id."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Self

from ..process import PIPED, Child, end_of, ending_of

SCRIPTS = Path(__file__).parent
_LONGEST_LOG = 4000
_ENDING_S = 5.0
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


class WorkerError(Exception):
    """An error in a worker: the name of its class, its message, and what native code logged meanwhile."""

    def __init__(self, error_type: str, message: str, log: str = "") -> None:
        super().__init__(f"{error_type}: {message}")
        self.error_type = error_type
        self.message = message
        self.log = log


class WorkerDied(WorkerError):
    """The process ended during a call; the message holds its exit code or signal."""


class WorkerTimeout(WorkerError):
    """A call took longer than its limit; the process was ended."""


class Worker:
    """Run `script` with `python`. The process starts with the first call, and again with the next call after it
    ended.

    `variables` are set in its environment. The script imports nothing of the product and runs in an empty folder:
    paths passed to it are absolute. It reads one JSON object per line from standard input and answers each with one
    on standard output.
    """

    def __init__(
        self,
        python: Path,
        *,
        timeout_s: float,
        script: Path,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.python = python
        self.variables = variables
        self.timeout_s = timeout_s
        self.script = script
        self._process: Child | None = None
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._log: IO[bytes] | None = None
        self._calls = 0

    @property
    def pid(self) -> int | None:
        """Id of the process, or None if none is alive."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process is not None else None

    def call(self, do: str, *, timeout_s: float | None = None, **arguments: Any) -> Mapping[str, Any]:
        """Call the worker and return its answer.

        Raises `WorkerError` with its error, `WorkerDied` if it ended, and `WorkerTimeout` if it was ended.
        """
        process = self._alive()
        self._calls += 1
        self._truncate_log()
        limit = self.timeout_s if timeout_s is None else timeout_s
        try:
            assert process.stdin is not None
            request = {"id": self._calls, "do": do, "arguments": arguments}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=limit)
        except queue.Empty:
            logged = self._logged()
            self.close()
            raise WorkerTimeout("timeout", f"{do} took longer than {limit:g} s", logged) from None
        except OSError:
            answer = b""
        if not answer:
            logged = self._logged()
            raise WorkerDied("crash", f"the worker ended during {do} ({self._exit_text()})", logged)
        result: dict[str, Any] = json.loads(answer)
        if "error" in result:
            raise WorkerError(result["error"]["type"], result["error"]["message"], self._logged())
        found: dict[str, Any] = result["result"]
        return found

    def close(self) -> None:
        """End the process, by its id."""
        log, self._log = self._log, None
        if log is not None:
            log.close()
        process, self._process = self._process, None
        if process is None:
            return
        process.end()
        self._folder.cleanup()
        for stream in (process.stdin, process.stdout):
            if stream is not None and not sys.is_finalizing():  # otherwise the reader holds the stream forever
                with contextlib.suppress(OSError):
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()  # a forgotten worker is ended too

    def _alive(self) -> Child:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        # Files that a runtime writes to its working directory, as QNN's saver does, are removed with the process.
        self._folder = tempfile.TemporaryDirectory(prefix="hwcompat-worker-", ignore_cleanup_errors=True)
        self._process = Child(
            # Isolated: neither our folders nor this environment's variables change what it imports.
            [str(self.python.absolute()), "-I", str(self.script.absolute())],
            stdin=PIPED,
            stdout=PIPED,
            stderr=self._log,
            cwd=self._folder.name,
            environment={**os.environ, **self.variables},
            own_session=False,  # killing a suite's child kills its workers too
        )
        self._answers = queue.Queue()
        reader = threading.Thread(target=_read, args=(self._process.stdout, self._answers), daemon=True)
        reader.start()
        return self._process

    def _exit_text(self) -> str:
        process = self._process
        if process is None:
            return "unknown"
        code = process.ended_in(_ENDING_S)
        self.close()
        return "unknown" if code is None else ending_of(code)

    def _truncate_log(self) -> None:
        if self._log is not None:
            self._log.seek(0)
            self._log.truncate()

    def _logged(self) -> str:
        """Return the end of what native code logged during the last call, without colors."""
        if self._log is None:
            return ""
        return _COLORS.sub("", end_of(self._log))[-_LONGEST_LOG:]


def _read(stream: IO[bytes] | None, answers: queue.Queue[bytes]) -> None:
    """Put each line into the queue as it comes, then an empty one when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        for line in stream or ():
            answers.put(line)
    answers.put(b"")
