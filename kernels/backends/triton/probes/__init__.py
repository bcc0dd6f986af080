"""Probes: each measures one property of a machine's GPUs on all ranks at once; a machine file is fitted to them."""
