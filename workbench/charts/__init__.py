"""Altair charts of the rows of a run: one question per file."""
