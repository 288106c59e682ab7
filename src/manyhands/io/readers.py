"""Readers of annotation tables, features and gold labels."""
