"""What can be computed, how it can be overlapped, and by whom: everything a rank needs."""
