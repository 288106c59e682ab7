"""Pages made from records: tables, figures, verdicts."""
