"""A model split over several devices: planned from plain figures, and checked for real with torch.distributed.

`plan.py` says who holds what and whom each talks to; `check.py` starts one process a rank, and holds outputs,
gradients and what each rank held against one device.
"""
