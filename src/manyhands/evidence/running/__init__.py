"""Running rows over seeds: cells, the code they depend on, and worker processes."""
