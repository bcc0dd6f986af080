"""Asking, remembering, showing: the room of the notebook and of the command line."""
