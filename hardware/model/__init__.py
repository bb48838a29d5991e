"""What exporters, backends and checks share about a model: types, named tensors, calls and decoding."""
