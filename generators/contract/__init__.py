"""What suites, the reporter and the pool rely on in any backend, as tests that its author runs.

    python -m pytest --pyargs generators.contract --backend mychip

It lies on this floor because a backend is asked for models; the contract of a vendor's file is
`hardware.testing.contract`. `docs/ADDING_A_BACKEND.md` explains it.
"""
