"""Evidence that several processes write, on a disk that runs full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from evidence_lines import check_line

from hardware.evidence.store import read_folder, read_run
from hardware.evidence.writer import EvidenceWriter

ROOT = Path(__file__).parents[2]
CODE = """
import resource, signal, sys
from pathlib import Path
from hardware.errors import OutputError
from hardware.evidence.record import EndLine
from hardware.evidence.writer import EvidenceWriter

def line(reason):
    return EndLine(run_id="r1", ended_at="now", reason=reason, counts={})

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = EvidenceWriter(Path(sys.argv[1]), "r1")
writer.write(line("first"))
resource.setrlimit(resource.RLIMIT_FSIZE, (400, resource.RLIM_INFINITY))
for _ in range(2):
    try:
        writer.write(line("x" * 600))
    except OutputError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.write(line("last"))
writer.close()
"""


def test_a_full_disk_is_an_output_error_and_all_other_lines_stay_whole(tmp_path: Path) -> None:
    writer = EvidenceWriter(tmp_path, "r1")
    writer.write(check_line())
    writer.close()
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    said = done.stdout.splitlines()
    assert len(said) == 2
    assert "evidence" in said[0]
    assert "writing evidence to" in said[0]
    found = read_folder(tmp_path)
    assert [end.reason for end in found.ends] == ["first", "last"]
    assert found.broken == ()
    assert len(list(tmp_path.glob("r1-*.jsonl"))) == 2  # each process has its own
    assert len(read_run(tmp_path, "r1").checks) == 1
