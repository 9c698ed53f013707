"""The tables of a run database.

SQLite's ``.schema`` shows names and comments to people. Each change to a table needs a new
``VERSION``; this includes a new field of ``SearchConfig``, which is a column of the table ``run``.
A run of another version is refused with an error that names the version of nas that reads it.
Tables are strict, so that the check on opening finds values of a wrong type.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x6E61731A  # "nas" and a control character; marks the file as a run's
VERSION: Final = 6

SESSIONS: Final = """CREATE TABLE sessions (  -- a process that began or resumed the run
    id INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    ended TEXT,                     -- NULL while it writes, and after it was killed
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    command TEXT NOT NULL,
    hardware TEXT NOT NULL,
    workers INTEGER NOT NULL,
    versions TEXT NOT NULL          -- JSON: {"nas": ..., "torch": ..., "python": ...}
) STRICT"""
TABLES: Final = (
    """CREATE TABLE run (  -- one row: all that determines the results, and the status
    id INTEGER PRIMARY KEY CHECK (id = 1),
    status TEXT NOT NULL CHECK (status IN ('running', 'stopped', 'finished')),
    note TEXT NOT NULL DEFAULT '',
    started TEXT NOT NULL,
    finished TEXT,
    seed INTEGER NOT NULL CHECK (seed >= 0),
    algorithm TEXT NOT NULL,
    population INTEGER NOT NULL CHECK (population >= 1),
    generations INTEGER NOT NULL CHECK (generations >= 1),
    lag INTEGER CHECK (lag >= 1),   -- NULL: the lag of the algorithm
    repeats INTEGER NOT NULL CHECK (repeats >= 1),
    objectives TEXT NOT NULL,       -- JSON: [{"name", "direction", "unit", "ideal", ...}, ...]
    metrics TEXT NOT NULL,          -- JSON: [{"name", "unit", "direction", ...}, ...], all measured
    calibration TEXT NOT NULL,      -- JSON: unit times measured at the start
    space_name TEXT NOT NULL, space_text TEXT NOT NULL, space_fingerprint TEXT NOT NULL,
    policy_name TEXT NOT NULL, policy_text TEXT NOT NULL, policy_fingerprint TEXT NOT NULL,
    task_name TEXT NOT NULL, task_text TEXT NOT NULL, task_fingerprint TEXT NOT NULL,
    target_name TEXT, target_text TEXT, target_fingerprint TEXT  -- NULL: no target task
) STRICT""",
    SESSIONS,
    """CREATE TABLE proposals (  -- every genome that was drawn; generation: number / population
    number INTEGER NOT NULL CHECK (number >= 0),  -- index of the training it was drawn for
    attempt INTEGER NOT NULL CHECK (attempt >= 0),  -- counts the draws for that number
    digest TEXT NOT NULL,           -- of the normal form
    key TEXT,                       -- digest resolved at the task's sizes
    genome TEXT NOT NULL,           -- JSON
    formula TEXT NOT NULL,
    operator TEXT NOT NULL,         -- what made it
    name TEXT,                      -- of the mechanism, where it is a named one
    parents TEXT NOT NULL,          -- JSON: [digest, ...]
    verdict TEXT NOT NULL CHECK (verdict IN ('new', 'repeated', 'replayed', 'rejected')),
    note TEXT NOT NULL DEFAULT '',
    costs TEXT NOT NULL,            -- JSON: {name: value}, of all attention layers
    recorded TEXT NOT NULL,
    CHECK (verdict NOT IN ('new', 'repeated') OR key IS NOT NULL),
    PRIMARY KEY (number, attempt)
) STRICT, WITHOUT ROWID""",
    "CREATE INDEX proposals_by_digest ON proposals (digest)",
    "CREATE UNIQUE INDEX proposals_by_key ON proposals (key) WHERE verdict = 'new'",
    """CREATE TABLE trainings (  -- every finished training, of the search and of later commands
    purpose TEXT NOT NULL CHECK (purpose IN
        ('search', 'target', 'confirm', 'evaluate', 'benchmark', 'explain', 'reference')),
    stage TEXT NOT NULL CHECK (stage IN ('', 'search', 'long', 'test')),  -- of a confirmation
    task TEXT NOT NULL,             -- fingerprint of task and data
    task_name TEXT NOT NULL,
    key TEXT NOT NULL,              -- digest resolved at the sizes of the task; of run.task for
                                    -- the purposes target and confirm
    name TEXT,                      -- of the mechanism, where it has one
    repeat INTEGER NOT NULL CHECK (repeat >= 0),
    seed INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ok', 'stopped', 'failed')),
    reason TEXT,                    -- of a failure
    metrics TEXT NOT NULL,          -- JSON: {name: value}, units in run.metrics
    reports TEXT NOT NULL,          -- JSON: one an epoch
    budget TEXT NOT NULL,           -- JSON: {"epochs", "examples", "precision"}
    wall_seconds REAL NOT NULL,
    core_seconds REAL NOT NULL,
    peak_memory_bytes INTEGER NOT NULL,
    worker TEXT NOT NULL,
    hardware TEXT NOT NULL,
    execution TEXT NOT NULL,        -- how its steps ran, in words
    error TEXT,
    recorded TEXT NOT NULL,
    CHECK ((purpose = 'confirm') = (stage != '')),
    PRIMARY KEY (purpose, key, repeat, stage, task, seed)
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE generations (  -- the state of the run after each generation
    number INTEGER PRIMARY KEY CHECK (number >= 0),
    hypervolume REAL NOT NULL,
    best REAL,                      -- of the first objective, by estimates
    finished TEXT NOT NULL
) STRICT""",
    """CREATE TABLE estimates (  -- estimates after it; of past generations the front alone
    generation INTEGER NOT NULL,
    key TEXT NOT NULL,
    means TEXT NOT NULL,            -- JSON: {objective: value}
    errors TEXT NOT NULL,           -- JSON: {metric: standard error}
    p REAL NOT NULL,                -- probability that it is within the limits of the objectives,
                                    -- and that no other mechanism within them dominates it
    is_member INTEGER NOT NULL CHECK (is_member IN (0, 1)),
    PRIMARY KEY (generation, key)
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE answers (  -- JSON of `nas explain` and `nas benchmark` on this run's mechanisms
    command TEXT NOT NULL CHECK (command IN ('explain', 'benchmark')),
    question TEXT NOT NULL,         -- a digest of mechanisms and tasks; asked again, it is replaced
    answer TEXT NOT NULL,
    recorded TEXT NOT NULL,
    PRIMARY KEY (command, question)
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE incidents (  -- failures of workers; no result depends on them
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,             -- preempted, node, memory, process, error, refused, ...
    text TEXT NOT NULL,
    worker TEXT NOT NULL,           -- host and process id, or nothing
    key TEXT,                       -- of the training that was started again, with its repeat
    repeat INTEGER,
    recorded TEXT NOT NULL
) STRICT""",
)
