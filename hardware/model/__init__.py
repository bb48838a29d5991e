"""Types, named tensors, calls and decoding of models, shared by exporters, backends and checks."""
