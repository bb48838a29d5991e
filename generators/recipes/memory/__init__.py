"""How much memory a model takes, told without allocating it: its operators run on tensors that have no data, and
each storage that would be allocated is counted from its birth to its release."""
