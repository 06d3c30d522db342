"""Suites of cases for editing models, in their published forms."""
