"""Tier C's step: a model's layers and collectives as tasks, scheduled on the resources of one rank, or of all."""
