"""Scorers: checkpoints and features that say how good one edit is."""
