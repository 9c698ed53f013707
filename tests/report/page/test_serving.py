"""A served page: who gets an answer, its policy, and how it follows a run."""

from __future__ import annotations

import http.client
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nas.report.page.serving import PageServer


@pytest.fixture
def run_folder(recorded_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recorded_run, tmp_path / "example")


@pytest.fixture
def server(run_folder: Path) -> Iterator[PageServer]:
    with serve(run_folder) as server:
        yield server
        server.shutdown()


def serve(folder: Path) -> PageServer:
    server = PageServer(folder, folder.name)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def ask(
    server: PageServer, path: str, method: str = "GET", host: str | None = None, **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(*server.server_address, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": host or "{}:{}".format(*server.server_address), **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    return connection.getresponse()


def test_policy_allows_requests_to_its_server_only(server: PageServer) -> None:
    answer = ask(server, server.path)
    text = answer.read().decode()
    assert answer.status == 200
    policy = text.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0]
    rules = [rule.strip() for rule in policy.split(";")]
    assert rules[0] == "default-src 'none'"
    assert [rule for rule in rules if "self" in rule] == ["connect-src 'self'"]
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Length"] == str(len(text.encode()))
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Access-Control-Allow-Origin"] is None
