"""What the inventory relies on in any vendor's file, as tests that a vendor runs on its own.

    python -m pytest --pyargs hwcompat.hardware.testing.contract --accelerator mychip --machines=recorded

`docs/ADDING_A_VENDOR.md` explains each.
"""
