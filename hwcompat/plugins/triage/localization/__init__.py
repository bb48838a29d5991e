"""Finds the place in a model from which its results are wrong: a module of torch, or a node of a converted graph."""
