"""Does this model work on that target? Predictions by rule, conclusions from evidence, the matrix of both."""
