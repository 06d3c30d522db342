"""Checkpoints served behind the OpenAI-compatible API."""
