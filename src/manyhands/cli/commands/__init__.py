"""One file per command: its options, and the job it starts."""
