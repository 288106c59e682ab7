"""Exports of labelling tools and platforms: one module per tool or layout, and one policy.

The module of a tool holds ``FORMAT``, with the rule by which it is recognised and the function that
turns its records into answers (`contract.Format`, `records.Gathered`), and ``WRITER``, if labels
can be imported into the tool (`contract.Writer`). `formats` lists all formats in the order in which
they are tried; no other file knows of a tool.

`documents` and `parsing` open files safely, `policy` decides which answers are kept, `reading`
makes the table, and `written` holds what all writers need. `manyhands.scale` does the same for
files that do not fit in memory.
"""
