"""The report: one page with the results and a gallery of pairs, from what the graph has written."""
