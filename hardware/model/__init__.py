"""What exporters, backends and checks share of a model: its types, tensors by name, calls and decoding."""
