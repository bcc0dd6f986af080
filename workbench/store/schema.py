"""What the store's file holds: its tables, and the history of their version.

1  runs, trials, outcomes, samples, fabrics
2  the block that outcomes and samples are of
3  what was measured before there were blocks counts as one block for each problem of a run
4  what ran: source print, versions print and hardware of outcomes, hardware behind the link of a fabric
"""

from __future__ import annotations

VERSION = 4
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
    ),
    2: (
        "ALTER TABLE outcomes ADD COLUMN block TEXT",
        "ALTER TABLE samples ADD COLUMN block TEXT",
        "CREATE INDEX outcomes_of_block ON outcomes (block) WHERE block IS NOT NULL",
    ),
    3: (
        # a recorded outcome is of the run that measured it; the names are those of workbench.blocks.older_block
        """CREATE TEMP TABLE older AS
            SELECT coalesce(o.origin, o.run) AS sitting, json_extract(t.trial, '$.problem') AS problem,
                coalesce(o.origin, o.run) || '.p' || row_number() OVER (
                    PARTITION BY coalesce(o.origin, o.run) ORDER BY min(o.id)) AS block
            FROM outcomes o JOIN trials t ON t.key = o.key
            WHERE o.block IS NULL AND o.outcome = 'measurement' GROUP BY 1, 2""",
        """UPDATE outcomes SET block = (SELECT older.block FROM older JOIN trials t ON t.key = outcomes.key
                WHERE older.sitting = coalesce(outcomes.origin, outcomes.run)
                AND older.problem = json_extract(t.trial, '$.problem'))
            WHERE block IS NULL AND outcome = 'measurement'""",
        """UPDATE samples SET block = (SELECT o.block FROM outcomes o WHERE o.key = samples.key AND o.run = samples.run
                AND o.origin IS NULL AND o.block IN (SELECT block FROM older))
            WHERE block IS NULL""",
        "DROP TABLE older",
    ),
    # what was measured before has none of them, and so is shown, but not known; `fingerprint` is what it had instead
    4: (
        "ALTER TABLE outcomes ADD COLUMN source_print TEXT",
        "ALTER TABLE outcomes ADD COLUMN versions_print TEXT",
        "ALTER TABLE outcomes ADD COLUMN hardware TEXT",  # JSON: kernels.hardware.Hardware.text
        "DROP INDEX outcomes_of_key",
        "CREATE INDEX outcomes_of_key ON outcomes (key, source_print)",
        "ALTER TABLE fabrics RENAME TO older_fabrics",
        """CREATE TABLE fabrics (
            machine TEXT NOT NULL,
            hardware TEXT NOT NULL,     -- as in outcomes; nothing where it was not written down
            problem TEXT NOT NULL,
            compute_s REAL NOT NULL,
            run TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (machine, hardware, problem)
        ) WITHOUT ROWID""",
        "INSERT INTO fabrics SELECT machine, '', problem, compute_s, run, at FROM older_fabrics",
        "DROP TABLE older_fabrics",
    ),
}
