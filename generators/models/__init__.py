"""Facts about models without running them: catalog, classifier, recipes, inputs."""
