"""transformers' own tests of a model type, run on a target: evidence of another origin, which makes no level.

`device_spec` writes the file by which transformers' tests know a device, `children` runs them, and `plugin` is what
records inside the child.
"""
