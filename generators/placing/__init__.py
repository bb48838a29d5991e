"""Models onto devices: what a model takes, where rules let it run and how long it takes there become workloads, which
`hardware/placement` puts on devices. `models.py` makes workloads, `machines.py` the devices of several machines."""
