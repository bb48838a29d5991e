"""What is known of models without running them: catalog, classifier, recipes, inputs."""
