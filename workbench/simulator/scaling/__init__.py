"""Tier C: a step of a model, whose layers and collectives are tasks on the resources of one rank or of all."""
