"""Vectors of raw pairs, and which pairs are kept: exact k-center and its coverage."""
