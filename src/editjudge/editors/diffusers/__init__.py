"""Editing models through diffusers."""
