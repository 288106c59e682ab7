"""Measures that rows ask for."""

from manyhands.evidence.measures.measures import *
