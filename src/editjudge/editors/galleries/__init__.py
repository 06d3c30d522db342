"""Edits that were made elsewhere."""
