"""The store: run folders and their databases. Reading a run imports no torch.

``create_run`` and ``open_writer`` return the only writer of a run, ``open_run`` returns a reader.
SQLite holds all records; no file of a run is unpickled.
"""

from nas.store.files import RUNS
from nas.store.folder import check_name, create_run, find_run
from nas.store.records import Candidate, Counts, Document, Proposal, RunSetup, Session
from nas.store.run import Run, find_candidate, find_proposal, named_members, open_run
from nas.store.writer import RunWriter, open_writer, this_session

__all__ = [
    "RUNS",
    "Candidate",
    "Counts",
    "Document",
    "Proposal",
    "Run",
    "RunSetup",
    "RunWriter",
    "Session",
    "check_name",
    "create_run",
    "find_candidate",
    "find_proposal",
    "find_run",
    "named_members",
    "open_run",
    "open_writer",
    "this_session",
]
