"""Exports of labelling tools and platforms: one module per family of formats, and one policy.

`documents` and `parsing` open files safely, and `formats` is the table by which they are
recognised. The module of a family turns records into answers (`records`), `policy` decides which
of them stay, and `reading` makes the table.
"""
