"""Nets: what the product answers today, frozen as data, and compared with what it answers later.

`python -m benchmarks.nets freeze` writes `frozen.json.gz` beside this file, `python -m benchmarks.nets compare` lists
each difference. Only the command line and public names are asked, so that the code behind them can move.
"""
