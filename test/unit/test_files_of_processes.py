"""Files that several processes write at once: each is whole, and what one adds the other doesn't lose."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hardware.files import is_in_use, one_at_a_time, work_folder

ROOT = Path(__file__).parents[2]


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_hold_ends_with_its_process_however_that_ends(tmp_path):
    holds = """
        import sys, time
        from pathlib import Path
        from hardware.files import one_at_a_time
        with one_at_a_time(Path(sys.argv[1])):
            print("held", flush=True)
            time.sleep(600)
    """
    waits = """
        import sys
        from pathlib import Path
        from hardware.files import one_at_a_time
        print("asks", flush=True)
        with one_at_a_time(Path(sys.argv[1])):
            print("held", flush=True)
    """
    with start(holds, tmp_path) as first:
        assert first.stdout.readline() == "held\n"
        with start(waits, tmp_path) as second:
            assert second.stdout.readline() == "asks\n"
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(timeout=0.5)
            first.kill()
            assert second.communicate(timeout=60)[0] == "held\n"
    with one_at_a_time(tmp_path):
        assert second.returncode == 0


def test_refusals_that_two_processes_keep_at_once_are_all_kept(tmp_path):
    keeps = """
        import sys
        from pathlib import Path
        from generators.models.recipe_store import Obstacle, Refusal
        from generators.models.recipe_store import keep_refusal
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(60):
            task = f"{sys.argv[2]}{number}"
            refusal = Refusal(model_type="bert", task=task, obstacle=Obstacle.NOT_DERIVED, reason="r")
            keep_refusal("bert", task, refusal, Path(sys.argv[1]))
    """
    children = [start(keeps, tmp_path, name) for name in "ab"]
    assert [child.stdout.readline() for child in children] == ["ready\n"] * 2
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    (path,) = tmp_path.glob("refused-*.json")
    assert path.read_text().count('"task"') == 120


def test_a_folder_of_work_goes_with_its_block_and_those_of_killed_processes_with_the_next(tmp_path):
    works = """
        import sys, time
        from pathlib import Path
        from hardware.files import work_folder
        with work_folder(Path(sys.argv[1]), "work-") as folder:
            (folder / "half").write_text("half")
            print(folder.name, flush=True)
            sys.stdin.readline()
    """
    (tmp_path / "kept").mkdir()

    def there() -> set[str]:
        return {path.name for path in tmp_path.iterdir() if path.is_dir()}

    with start(works, tmp_path) as killed, start(works, tmp_path) as alive:
        names = [one.stdout.readline().strip() for one in (killed, alive)]
        assert there() == {"kept", *names}
        killed.kill()
        killed.wait()
        assert there() == {"kept", *names}
        with work_folder(tmp_path, "work-") as own:
            assert there() == {"kept", names[1], own.name}
        alive.communicate("\n", timeout=60)
    assert there() == {"kept"}


def test_a_file_is_in_use_until_its_process_ends(tmp_path):
    path = tmp_path / "file"
    code = """
    import sys
    from hardware.files import mark_in_use
    file = open(sys.argv[1], "ab")
    mark_in_use(file.fileno())
    print(flush=True)
    sys.stdin.read()
    """
    with start(code, path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert is_in_use(path)
        process.kill()
        process.wait()
    assert not is_in_use(path)
