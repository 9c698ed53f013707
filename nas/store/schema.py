"""The tables of a run database.

The column ``record`` holds a dataclass as JSON (``nas.store.records``, ``nas.evaluation.trial``),
from which the columns that queries use are computed. A new field that changes results, or that
older records lack, needs a new ``VERSION``; others are refused.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x6E61731A  # "nas" and a control character; marks the file as a run's
VERSION: Final = 7

TABLES: Final = (
    """CREATE TABLE run (  -- one row
    id INTEGER PRIMARY KEY CHECK (id = 1),
    status TEXT NOT NULL CHECK (status IN ('running', 'stopped', 'finished')),
    note TEXT NOT NULL DEFAULT '',  -- why it ended early
    started TEXT NOT NULL,
    finished TEXT,
    record TEXT NOT NULL            -- RunSetup: all that determines the results
) STRICT""",
    """CREATE TABLE sessions (  -- the processes that began or resumed the run
    id INTEGER PRIMARY KEY,
    record TEXT NOT NULL            -- PastSession
) STRICT""",
    """CREATE TABLE proposals (  -- every genome that was drawn; generation: number / population
    number INTEGER NOT NULL AS (record ->> 'number') STORED,    -- of the training it is drawn for
    attempt INTEGER NOT NULL AS (record ->> 'attempt') STORED,  -- counts the draws for the number
    digest TEXT NOT NULL AS (record ->> 'digest') STORED,       -- of the normal form
    key TEXT AS (record ->> 'key') STORED,                      -- digest at the task's sizes
    verdict TEXT NOT NULL AS (record ->> 'verdict') STORED,     -- new, repeated, replayed, rejected
    recorded TEXT NOT NULL,
    record TEXT NOT NULL,           -- Proposal
    UNIQUE (number, attempt)
) STRICT""",
    "CREATE INDEX proposals_by_digest ON proposals (digest)",
    "CREATE UNIQUE INDEX proposals_by_key ON proposals (key) WHERE verdict = 'new'",
    """CREATE TABLE trainings (  -- every finished training, of the search and of later commands
    purpose TEXT NOT NULL AS (record ->> 'purpose') STORED,     -- search, target, confirm, ...
    stage TEXT NOT NULL AS (record ->> 'stage') STORED,         -- of a confirmation
    task TEXT NOT NULL AS (record ->> 'task') STORED,           -- fingerprint of task and data
    key TEXT NOT NULL AS (record ->> 'key') STORED,             -- digest at the task's sizes
    repeat INTEGER NOT NULL AS (record ->> 'repeat') STORED,
    seed INTEGER NOT NULL AS (record ->> '$.evaluation.seed') STORED,
    status TEXT NOT NULL AS (record ->> '$.evaluation.status') STORED,  -- ok, stopped, failed
    reason TEXT AS (record ->> '$.evaluation.reason') STORED,   -- of a failure
    record TEXT NOT NULL,           -- Training
    UNIQUE (purpose, key, repeat, stage, task, seed)
) STRICT""",
    """CREATE TABLE generations (  -- the state of the run after each generation
    number INTEGER NOT NULL UNIQUE AS (record ->> 'number') STORED,
    record TEXT NOT NULL            -- Generation, without its counts
) STRICT""",
    """CREATE TABLE estimates (  -- estimates of each mechanism after the last generation
    key TEXT NOT NULL UNIQUE AS (record ->> 'key') STORED,
    record TEXT NOT NULL            -- Estimate
) STRICT""",
    """CREATE TABLE answers (  -- results of `nas explain` about this run's mechanisms
    question TEXT PRIMARY KEY,      -- a digest of mechanisms and tasks; asked again, it is replaced
    recorded TEXT NOT NULL,
    record TEXT NOT NULL            -- the JSON that the command prints
) STRICT""",
    """CREATE TABLE incidents (  -- failures of workers; no result depends on them
    id INTEGER PRIMARY KEY,
    recorded TEXT NOT NULL,
    record TEXT NOT NULL            -- Incident
) STRICT""",
)
