"""What people run beside the graph."""
