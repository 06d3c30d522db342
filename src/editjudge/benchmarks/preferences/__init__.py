"""Reward benchmarks: pairs and scores that people judged, in their published forms."""
