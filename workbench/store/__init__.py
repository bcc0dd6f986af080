"""What is remembered: runs, trials, outcomes and every raw sample, in one SQLite file; the only home of sqlite3."""

from workbench.store.samples import SampleBuffer
from workbench.store.store import STORE_FILE, Store, place

__all__ = ["STORE_FILE", "SampleBuffer", "Store", "place"]
