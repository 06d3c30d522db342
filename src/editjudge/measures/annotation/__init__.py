"""Recipes of tasks, and the measures of many candidates."""
