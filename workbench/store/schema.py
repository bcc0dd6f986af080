"""What the store's file holds: its tables, and the history of their version.

1  runs, trials, outcomes, samples, fabrics
"""

from __future__ import annotations

VERSION = 1
"""Kept in the file as `user_version`. A new one comes with a line above and statements that bring an old file to it."""

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        # one sitting: what was asked and under which circumstances
        """CREATE TABLE runs (
            id TEXT PRIMARY KEY,
            started_at REAL NOT NULL,
            ended_at REAL,
            status TEXT NOT NULL,       -- running, finished, cancelled, or the sentence that stopped it
            title TEXT NOT NULL,
            experiment TEXT NOT NULL,   -- JSON
            provenance TEXT NOT NULL    -- JSON
        )""",
        "CREATE TABLE trials (key TEXT PRIMARY KEY, trial TEXT NOT NULL) WITHOUT ROWID",
        # the id is the cursor of live charts: ids only grow, in the order of commits
        """CREATE TABLE outcomes (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL REFERENCES runs (id),
            key TEXT NOT NULL REFERENCES trials (key),
            fingerprint TEXT NOT NULL,
            at REAL NOT NULL,
            outcome TEXT NOT NULL,
            source TEXT NOT NULL,
            origin TEXT,                -- the run whose samples a recorded outcome shows
            row TEXT NOT NULL,          -- JSON: what was known by itself; joined numbers are computed when asked
            spans TEXT NOT NULL         -- JSON
        )""",
        "CREATE INDEX outcomes_of_run ON outcomes (run, id)",
        "CREATE INDEX outcomes_of_key ON outcomes (key, fingerprint)",
        """CREATE TABLE samples (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL,
            key TEXT NOT NULL,
            rank INTEGER NOT NULL,
            number INTEGER NOT NULL,
            seconds REAL NOT NULL,
            at REAL NOT NULL
        )""",
        "CREATE INDEX samples_of_trial ON samples (run, key)",
        # what wire_to_compute is resolved with: Fabric.resolve makes the bandwidth of it
        """CREATE TABLE fabrics (
            machine TEXT NOT NULL,
            problem TEXT NOT NULL,      -- JSON
            compute_s REAL NOT NULL,    -- the sequential schedule's computation alone
            run TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (machine, problem)
        ) WITHOUT ROWID""",
    )
}
