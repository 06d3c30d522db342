"""Scorers for trainers: the reward service, and curation."""
