"""Faults in the product, so that the benchmark has something to find."""

import os
import signal
from pathlib import Path


def buffered() -> None:
    """Buffer lines of evidence: acknowledged lines are lost with their process."""
    from hardware.evidence.writer import EvidenceWriter

    noted, close = EvidenceWriter.write, EvidenceWriter.close
    waiting: dict[int, list[object]] = {}

    def write(self: EvidenceWriter, line: object) -> None:
        if len(waiting.setdefault(id(self), [])) == 2:
            for one in [*waiting.pop(id(self)), line]:
                noted(self, one)
        else:
            waiting[id(self)].append(line)
            self.noted(line)

    def close_all(self: EvidenceWriter) -> None:
        for one in waiting.pop(id(self), []):
            noted(self, one)
        close(self)

    def note(self: EvidenceWriter, line: object) -> None:
        """Acknowledge a line before it is written."""
        import hashlib
        import json

        from hardware.evidence.record import to_dict
        from hardware.redaction import redact_all

        text = json.dumps(redact_all(to_dict(line)), ensure_ascii=True)
        with Path(os.environ["HWCOMPAT_CRASH_LOG"], f"{os.getpid()}.ack").open("a", encoding="utf-8") as log:
            log.write(f"{hashlib.sha256(text.encode()).hexdigest()} {self.path.name}\n")

    EvidenceWriter.write, EvidenceWriter.close, EvidenceWriter.noted = write, close_all, note


def half_files() -> None:
    """Write files in place, and die in the middle of the third."""
    from hardware import files

    written: list[Path] = []

    def write_whole(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
        data = content.encode() if isinstance(content, str) else content
        written.append(path)
        if len(written) == 3:
            path.write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        path.write_bytes(data)
        path.chmod(mode)

    files.write_whole = write_whole


def orphans() -> None:
    """Keep children running after their parent has died."""
    from hardware.testing import suite_child

    suite_child.die_with_parent = lambda _parent: None


def silence() -> None:
    """Omit the lines that a dead child left open."""
    from hardware.testing import runner

    runner._breakdown_line = lambda suite, lines, *_: lines[-1] if lines else None
    runner.close = lambda *_: []


SABOTAGES = {one.__name__: one for one in (buffered, half_files, orphans, silence)}
