"""Ratings, intervals, agreement, transitivity, psychometric curves."""
