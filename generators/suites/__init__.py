"""From what is known of a model to test files that an engineer could have written."""
