"""Work on many records: the record store, processes, launching, GPUs."""
