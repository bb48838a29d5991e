"""Split a model over several devices: planned from plain figures, and checked with torch.distributed.

`mesh_plan.py` assigns devices and layers to ranks; `mesh_check.py` starts one process per rank and compares outputs,
gradients and the held weights with those of one device.
"""
