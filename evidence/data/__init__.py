"""The data of rows, and variants of data sets."""
