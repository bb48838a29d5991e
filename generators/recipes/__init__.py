"""Make recipes: tiny configurations, inputs and measurements. Models are built and run here."""
