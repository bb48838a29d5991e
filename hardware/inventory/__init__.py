"""The inventory of a machine: accelerators, processor, memory and storage, read through `hardware/machine.py`."""
