"""Linear models on inferred labels, chosen on these labels alone (no torch)."""
