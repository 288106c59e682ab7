"""Measures that rows ask for."""
