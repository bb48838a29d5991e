"""What a machine has: vendors of accelerators, processor, memory and storage, read through `hardware/machine.py`."""
