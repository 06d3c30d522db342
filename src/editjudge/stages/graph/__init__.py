"""Settings of params.yaml that several stages share."""
