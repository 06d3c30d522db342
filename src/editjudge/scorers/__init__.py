"""Scorers: what says how good one edit is, by itself."""
