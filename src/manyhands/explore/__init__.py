"""A local page on which a person reviews and corrects labels; ``manyhands explore``."""
