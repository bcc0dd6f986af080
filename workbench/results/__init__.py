"""Results: runs, trials, outcomes and raw samples in one SQLite file, and the numbers derived from them."""

from workbench.results.store import STORE_FILE, SampleBuffer, Store, store_path

__all__ = ["STORE_FILE", "SampleBuffer", "Store", "store_path"]
