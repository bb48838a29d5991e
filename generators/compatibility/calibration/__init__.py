"""How often predictions are right: scored on model types that no rule was tuned on."""
