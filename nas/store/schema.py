"""The tables of a run database.

Names and comments are part of what a person reads who opens the file without this project
(``.schema`` prints them). A change to a table gets a new ``VERSION``; runs of another one are
refused. Tables are strict, so that the check on opening finds a value of the wrong kind.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x6E61731A  # "nas" and the end-of-text sign: marks the file as ours.
VERSION: Final = 4

_ENDED: Final = """status TEXT NOT NULL CHECK (status IN ('ok', 'stopped', 'failed')),
    reason TEXT,                    -- of a failure
    metrics TEXT NOT NULL,          -- JSON: {name: value}, units in run.objectives
    reports TEXT NOT NULL,          -- JSON: one an epoch
    seed INTEGER NOT NULL,
    budget TEXT NOT NULL,           -- JSON: {"epochs", "examples", "precision"}
    wall_seconds REAL NOT NULL,
    core_seconds REAL NOT NULL,
    peak_memory_bytes INTEGER NOT NULL,
    worker TEXT NOT NULL,
    hardware TEXT NOT NULL,
    execution TEXT NOT NULL,        -- how its steps ran, in words
    error TEXT,
    recorded TEXT NOT NULL"""

INCIDENTS: Final = """CREATE TABLE IF NOT EXISTS incidents (  -- what befell machines
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,             -- preempted, node, memory, process, error, refused, ...
    text TEXT NOT NULL,
    worker TEXT NOT NULL,           -- host and process id, or nothing
    key TEXT,                       -- of the training that was begun again, with its repeat
    repeat INTEGER,
    recorded TEXT NOT NULL
) STRICT"""
"""Runs begun before there was such a table get it when they are written again."""

TABLES: Final = (
    """CREATE TABLE run (  -- one row: all that decides what the run finds, and how it stands
    id INTEGER PRIMARY KEY CHECK (id = 1),
    status TEXT NOT NULL CHECK (status IN ('running', 'stopped', 'finished')),
    note TEXT NOT NULL DEFAULT '',
    started TEXT NOT NULL,
    finished TEXT,
    seed INTEGER NOT NULL CHECK (seed >= 0),
    algorithm TEXT NOT NULL,
    population INTEGER NOT NULL CHECK (population >= 1),
    generations INTEGER NOT NULL CHECK (generations >= 1),
    lag INTEGER CHECK (lag >= 1),   -- NULL: a generation knows all earlier ones
    repeats INTEGER NOT NULL CHECK (repeats >= 1),
    objectives TEXT NOT NULL,       -- JSON: [{"name", "direction", "unit", "ideal", ...}, ...]
    calibration TEXT NOT NULL,      -- JSON: unit times measured at the start
    space_name TEXT NOT NULL, space_text TEXT NOT NULL, space_fingerprint TEXT NOT NULL,
    policy_name TEXT NOT NULL, policy_text TEXT NOT NULL, policy_fingerprint TEXT NOT NULL,
    task_name TEXT NOT NULL, task_text TEXT NOT NULL, task_fingerprint TEXT NOT NULL
) STRICT""",
    """CREATE TABLE sessions (  -- a process that wrote the run: it began or resumed it
    id INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    ended TEXT,                     -- NULL while it writes, and after it was killed
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    command TEXT NOT NULL,
    hardware TEXT NOT NULL,
    workers INTEGER NOT NULL,
    versions TEXT NOT NULL          -- JSON: {"nas": ..., "torch": ..., "python": ...}
) STRICT""",
    """CREATE TABLE proposals (  -- every genome that was drawn; generation: number / population
    number INTEGER NOT NULL CHECK (number >= 0),  -- drawn to be the how-manieth training
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
    f"""CREATE TABLE trials (  -- every training that ended, well or not
    key TEXT NOT NULL,
    repeat INTEGER NOT NULL,
    {_ENDED},
    PRIMARY KEY (key, repeat)
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE generations (  -- how the run stood when all of a generation was trained
    number INTEGER PRIMARY KEY CHECK (number >= 0),
    hypervolume REAL NOT NULL,
    best REAL,                      -- of the first objective, by estimates
    finished TEXT NOT NULL
) STRICT""",
    """CREATE TABLE estimates (  -- what was believed then; of past generations the front alone
    generation INTEGER NOT NULL,
    key TEXT NOT NULL,
    means TEXT NOT NULL,            -- JSON: {objective: value}
    errors TEXT NOT NULL,           -- JSON: {metric: standard error}
    p REAL NOT NULL,                -- how likely nothing that was trained dominates it
    is_member INTEGER NOT NULL CHECK (is_member IN (0, 1)),
    PRIMARY KEY (generation, key)
) STRICT, WITHOUT ROWID""",
    f"""CREATE TABLE confirmations (  -- trainings with fresh seeds, which no search learns from
    part TEXT NOT NULL CHECK (part IN ('search', 'long', 'test')),  -- test: judged on the test set
    task TEXT NOT NULL,             -- fingerprint of task and data
    task_name TEXT NOT NULL,
    key TEXT NOT NULL,              -- digest resolved at the sizes of the run's own task
    name TEXT,                      -- of the mechanism, where it is a named one
    repeat INTEGER NOT NULL,
    {_ENDED},
    PRIMARY KEY (part, task, key, repeat)
) STRICT, WITHOUT ROWID""",
)
