"""Making recipes: tiny configurations, inputs, measurements. Here models are built and run."""
