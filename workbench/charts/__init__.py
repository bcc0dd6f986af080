"""A frame becomes an Altair chart: one question per file."""
