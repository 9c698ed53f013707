"""A session says what could change a front, without importing it."""

from __future__ import annotations

import platform

from nas.store import this_session


def test_this_session_names_versions_and_hardware() -> None:
    session = this_session("nas search", workers=3)
    assert (session.command, session.workers) == ("nas search", 3)
    assert session.versions["python"] == platform.python_version()
    assert "torch" in session.versions
    assert "cores" in session.hardware


def test_this_session_takes_a_gpu_for_its_hardware() -> None:
    assert this_session("nas search", hardware="a GPU").hardware == "a GPU"
