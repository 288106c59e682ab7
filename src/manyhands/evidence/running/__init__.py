"""Rows run over seeds: cells, the code they depend on, workers."""
