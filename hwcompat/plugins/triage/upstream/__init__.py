"""Run transformers' own tests of a model type on a target. Their evidence has another origin and sets no level.

`device_spec` writes the file that describes a device to transformers' tests, `children` runs the tests, and
`upstream_plugin` records them inside the child process.
"""
