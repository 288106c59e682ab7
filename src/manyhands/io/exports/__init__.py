"""Exports of labelling tools and platforms: one module per tool or layout, and one policy.

A module of a tool holds ``FORMAT``: the rule by which it is recognised, and the function that
turns its records into answers (`contract.Format`, `records.Gathered`); and ``WRITER``, if the tool
takes labels back (`contract.Writer`). `formats` lists them all, by value, the first that matches
before others, and is the only other file that knows of a tool.

`documents` and `parsing` open files safely, `policy` decides which answers stay, `reading` makes
the table, `cutting` and `pieces` do the same for files that do not fit in memory, and `written`
is what all writers need.
"""
