"""Experiments: what is requested, which schedules that makes, how a run measures them, how long it takes."""
