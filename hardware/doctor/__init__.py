"""Find the devices and targets of a machine that can't be used, and the commands that fix it.

`hardware_diagnosis.py` judges an inventory and the smoke tests; `remedies.toml` holds the commands.
"""
