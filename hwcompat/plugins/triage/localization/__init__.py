"""Localization: the module of torch, or the node of a converted graph, that first computes wrong numbers."""
