"""Tier C's network: hierarchical fabrics, and what a collective costs on them, as pure functions."""

from workbench.simulator.network.collectives import ALGORITHMS, Cost, collective
from workbench.simulator.network.levels import Network, load, of_machine

__all__ = ["ALGORITHMS", "Cost", "Network", "collective", "load", "of_machine"]
