"""The tables of a run database, and the way from each older form to the next.

Names and comments are part of what a person reads who opens the file without this project
(``.schema`` prints them). A change to a table gets a new ``VERSION`` and a step in ``MIGRATIONS``;
recorded runs are never rewritten by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

APPLICATION_ID: Final = 0x6E61731A  # "nas" and the end-of-text sign: marks the file as ours.
VERSION: Final = 2

TABLES: Final = (
    """CREATE TABLE run (  -- one row: all that decides what the run finds, and how it stands
    id INTEGER PRIMARY KEY CHECK (id = 1),
    status TEXT NOT NULL CHECK (status IN ('running', 'stopped', 'finished')),
    note TEXT NOT NULL DEFAULT '',
    started TEXT NOT NULL,
    finished TEXT,
    seed INTEGER NOT NULL,
    algorithm TEXT NOT NULL,
    population INTEGER NOT NULL,
    generations INTEGER NOT NULL,
    repeats INTEGER NOT NULL,
    objectives TEXT NOT NULL,       -- JSON: [{"name", "direction", "unit", "about"}, ...]
    ideal_point TEXT NOT NULL,      -- JSON: a number an objective, in its unit
    reference_point TEXT NOT NULL,
    choices TEXT NOT NULL,          -- JSON: measured at start, reused ever after
    space_name TEXT NOT NULL, space_text TEXT NOT NULL, space_fingerprint TEXT NOT NULL,
    policy_name TEXT NOT NULL, policy_text TEXT NOT NULL, policy_fingerprint TEXT NOT NULL,
    task_name TEXT NOT NULL, task_text TEXT NOT NULL, task_fingerprint TEXT NOT NULL
)""",
    """CREATE TABLE sessions (  -- a process that wrote the run: it began or resumed it
    id INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    ended TEXT,                     -- NULL while it writes, and after it was killed
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    command TEXT NOT NULL,
    processor TEXT NOT NULL,
    workers INTEGER NOT NULL,
    versions TEXT NOT NULL          -- JSON: {"nas": ..., "torch": ..., "python": ...}
)""",
    """CREATE TABLE proposals (  -- every genome the search proposed, in order
    generation INTEGER NOT NULL,
    position INTEGER NOT NULL,
    digest TEXT NOT NULL,           -- of the canonical form
    key TEXT,                       -- digest resolved at the task's sizes
    genome TEXT NOT NULL,           -- JSON
    formula TEXT NOT NULL,
    origin TEXT NOT NULL,           -- the operator that made it
    parents TEXT NOT NULL,          -- JSON: [digest, ...]
    outcome TEXT NOT NULL CHECK (outcome IN ('new', 'replayed', 'rejected')),
    note TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (generation, position)
) WITHOUT ROWID""",
    "CREATE INDEX proposals_by_digest ON proposals (digest)",
    "CREATE INDEX proposals_by_key ON proposals (key)",
    """CREATE TABLE evaluations (  -- every training that ended, well or not
    key TEXT NOT NULL,
    repeat INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ok', 'failed')),
    reason TEXT,                    -- of a failure
    objectives TEXT NOT NULL,       -- JSON: {name: value}, units in run.objectives
    curve TEXT NOT NULL,            -- JSON: [[epoch, training loss, validation accuracy], ...]
    seed INTEGER NOT NULL,
    budget TEXT NOT NULL,
    wall_seconds REAL NOT NULL,
    core_seconds REAL NOT NULL,
    peak_memory_bytes INTEGER NOT NULL,
    worker TEXT NOT NULL,
    error TEXT,
    execution TEXT NOT NULL DEFAULT '',  -- how its steps ran: eagerly, as a CUDA graph, together
    recorded TEXT NOT NULL,
    PRIMARY KEY (key, repeat)
) WITHOUT ROWID""",
    """CREATE TABLE generations (  -- how the run stood after each generation
    number INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    finished TEXT NOT NULL,
    hypervolume REAL NOT NULL,
    best_accuracy REAL,
    proposed INTEGER NOT NULL,      -- counts of this generation alone
    evaluated INTEGER NOT NULL,
    replayed INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    front TEXT NOT NULL             -- JSON: [digest, ...], of the run so far
)""",
)

# From a version to the next: statements that run in one transaction.
MIGRATIONS: Final[Mapping[int, tuple[str, ...]]] = {
    1: ("ALTER TABLE evaluations ADD COLUMN execution TEXT NOT NULL DEFAULT ''",),
}
