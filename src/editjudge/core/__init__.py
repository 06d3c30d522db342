"""What every room stands on: rows and contracts, settings, images, regions, the record cache, processes."""
