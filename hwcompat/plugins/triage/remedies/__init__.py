"""Changes that may turn a failing cell: which apply, tried in children, judged as strictly as the cell itself."""
