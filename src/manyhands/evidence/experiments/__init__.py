"""Rows and papers as data, checked without training."""
