"""Experiments, their results and their display, for notebooks and the command line."""
