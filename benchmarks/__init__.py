"""Measurements of the library. README.md says how they run; `evidence.study` is what all share."""
