"""What crowd classifiers share: one fit, prediction, watching, persistence."""
