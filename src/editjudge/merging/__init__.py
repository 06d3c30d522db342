"""An adapter into its base, streamed."""
