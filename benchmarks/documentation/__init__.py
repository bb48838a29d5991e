"""The code that stands in documentation is run: `python -m benchmarks.documentation`.

`blocks.py` finds it in pages, `workspace.py` runs it, `links.py` follows links. The site is made by `make docs` from
`mkdocs.yml` and `docs/site/hooks.py`.
"""
