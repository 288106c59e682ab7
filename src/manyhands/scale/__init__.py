"""What only tables larger than memory, or than one machine, need: stores, ingest, clusters.

A store (`AnnotationStore`) is accepted wherever truth inference takes a table. To inference, it is
another iterator of shards (`manyhands.inference.votes.Shards`).
"""
