"""Ours beside rivals in one run, and how costs grow: `python -m benchmarks.side_by_side`, or `make bench`.

Each module but those named below measures one thing and gives `Result` (`result.py`); `processes.py` is how
processes are timed in turns, `rivals.py` which programs are there, `scripts.toml` lists every script of `benchmarks/`
with what runs it, `page.py` and `drawing.py` make docs/BENCHMARKS.md of what was kept.
"""
