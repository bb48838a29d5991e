"""Compare two devices with each other: layer by layer, token by token, and both with float64."""
