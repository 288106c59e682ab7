"""Running rows over seeds: cells, worker processes, and comparison with the records."""
