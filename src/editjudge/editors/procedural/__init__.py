"""The embedded editors."""
