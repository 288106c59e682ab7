"""The data of rows, and their variants."""
