"""Failed is an error of the world and not of the question: a full disk, a scheduler that is gone."""

from __future__ import annotations


class Failed(ValueError):
    """What was asked can be asked, and yet it did not work: one sentence for people. A command ends with status 1."""
