"""Annotations that exceed memory or one machine: stores, ingest, clusters.

A store (`AnnotationStore`) is accepted wherever truth inference takes a table. Inference reads both
in the same way, as an iterator of shards (`manyhands.inference.votes.Shards`).
"""
