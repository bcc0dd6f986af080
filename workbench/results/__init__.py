"""What is remembered: runs, trials, outcomes and every raw sample, in one SQLite file; the only home of sqlite3."""

from workbench.results.store import STORE_FILE, SampleBuffer, Store, place

__all__ = ["STORE_FILE", "SampleBuffer", "Store", "place"]
