"""What is put where: devices with figures that say where they are from, and workloads placed on them.

`device.py` holds the values that all of it shares.
"""
