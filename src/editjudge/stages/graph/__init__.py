"""All of params.yaml, and the lists of dvc.yaml that come from it."""
