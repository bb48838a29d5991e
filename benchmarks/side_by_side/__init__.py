"""Compare with other tools in one run, and measure growth: `python -m benchmarks.side_by_side`, or `make bench`.

Each module except those below measures one thing and returns a `Result` (`result.py`). `processes.py` times processes
in turns, `rivals.py` finds the other programs, `scripts.toml` lists every script of `benchmarks/` and its command,
`page.py` makes docs/measured/benchmarks.md.
"""
