"""Checkpoints on disk: an adapter merged into its base, streamed."""
