"""Cache simulator: the L1 of every SM, a sliced L2 and DRAM rows, replayed access by access under any policy."""
