"""Editing models behind an OpenAI-compatible images/edits endpoint."""
