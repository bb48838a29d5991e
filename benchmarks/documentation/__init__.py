"""Run the code of documentation pages: `python -m benchmarks.documentation`.

`blocks.py` finds code blocks, `workspace.py` runs them, `links.py` checks links, `commands.py` lists the commands.
`make docs` makes the site from `mkdocs.yml` and `docs/site/hooks.py`.
"""
