"""Puts between hosts that a kernel starts: NCCL's device API (GIN) next to torch's NCCL. Run on one GPU only."""
