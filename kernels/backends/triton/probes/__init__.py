"""What one machine's GPUs can do, one property at a time: measured on all ranks at once, to fit a machine file to."""
