"""From photographs to regions and instructions."""
