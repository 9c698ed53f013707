"""A served page: who gets an answer, its policy, and how it follows a run."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nas.common.errors import RunError
from nas.report.page import serving
from nas.report.page.serving import PageServer
from nas.store import open_writer, this_session
from tests.recorded_run import MakeRun, go_on
from tests.report.page.conftest import READY

# Every view of the page is ready.
STANDS = "document.documentElement.dataset.ready"


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


def test_server_listens_on_this_machine_only(server: PageServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.url.startswith("http://127.0.0.1:")
    assert len(server.path) > 40


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


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_only_the_whole_address_is_answered(server: PageServer, method: str) -> None:
    wrong = server.path[:-1] + ("a" if server.path[-1] != "a" else "b")
    own = server.path
    others = ["/", wrong, own[:-1], f"{own}/", f"{own}?x", f"{own}/../x", "/favicon.ico", "/../.."]
    for path in [*others, f"http://evil.example{own}"]:
        answer = ask(server, path, method)
        assert answer.status == 403, path
        assert server.path.encode() not in answer.read()


@pytest.mark.parametrize(
    "hosts",
    [
        *(["evil.example"], ["127.0.0.1.evil.example"], ["evil@127.0.0.1"], ["[::1]"], [""]),
        *(["127.0.0.1:x"], ["127.0.0.1", "evil.example"], []),
    ],
)
def test_foreign_hosts_several_or_none_are_refused(server: PageServer, hosts: list[str]) -> None:
    connection = http.client.HTTPConnection(*server.server_address, timeout=60)
    connection.putrequest("GET", server.path, skip_host=True)
    for host in hosts:
        connection.putheader("Host", host)
    connection.endheaders()
    assert connection.getresponse().status == 403


def test_forwarded_port_is_answered(server: PageServer) -> None:
    assert ask(server, server.path, "HEAD", host="localhost:9000").status == 200


def test_head_answers_304_until_the_record_changes(
    server: PageServer, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ask(server, server.path).headers["ETag"]
    with monkeypatch.context() as patch:
        # A HEAD request reads no record.
        patch.setattr(serving, "open_run", None)
        assert ask(server, server.path, "HEAD", If_None_Match=first).status == 304
    with open_writer(run_folder, this_session("nas resume")) as writer:
        answer = ask(server, server.path, "HEAD", If_None_Match=first)
        assert answer.status == 200
        assert answer.headers["ETag"] != first
        assert "running" in ask(server, server.path).read().decode()
        writer.finish()


def test_taken_port_is_refused(server: PageServer, run_folder: Path) -> None:
    port = server.server_address[1]
    with pytest.raises(RunError, match=f"port {port} of 127.0.0.1 is not available .*--port"):
        PageServer(run_folder, "example", port)


def test_client_that_disconnects_causes_no_error(
    server: PageServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(server.server_address[:2]) as one:
        host = "127.0.0.1"
        one.sendall(f"GET {server.path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert ask(server, server.path).status == 200
    server.shutdown()
    server.server_close()
    assert capfd.readouterr().err == ""


def until(page: Any, expression: str) -> None:
    """Wait for something to become true; playwright's own way breaks the page's policy."""
    from playwright.sync_api import Error

    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(Error):  # between two pages there is none to ask
            if page.evaluate(f"Boolean({expression})"):
                return
        page.wait_for_timeout(50)
    pytest.fail(f"never became true: {expression}")


@pytest.mark.browser
def test_page_follows_the_run_and_keeps_its_state(
    browser: Any, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(serving, "MAX_RENDERING_SHARE", 1e9)
    folder = make_run(tmp_path, generations=1, is_finished=False)
    messages: list[str] = []
    with serve(folder) as server:
        page = browser.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(server.url)
        page.wait_for_selector(READY, state="attached")
        before = page.inner_text("#filter .count")
        page.click("#rows tbody tr[data-place='3']")
        fragment = page.evaluate("location.hash")
        chosen = fragment.removeprefix("#id=")[:8]
        assert chosen in page.inner_text("#mechanism")
        page.evaluate("scrollTo({top: 300, behavior: 'instant'})")
        go_on(folder, generations=2)
        count = "document.querySelector('#filter .count')"
        until(page, f"{STANDS} && {count} && {count}.innerText !== '{before}'")
        # The writer recorded several times: wait for the last one.
        now = f"document.documentElement.dataset.token === '{server.change_token()}'"
        until(page, f"{STANDS} && {now}")
        assert page.evaluate("location.hash") == fragment
        assert chosen in page.inner_text("#mechanism")
        until(page, "Math.abs(scrollY - 300) < 2")
        assert page.inner_text(".watched") == "watched"
        # A reload waits while somebody types.
        page.focus("#words")
        marked = "window.marked = true"
        page.evaluate(marked)
        (folder / "run.sqlite").touch()
        until(page, "document.querySelector('.watched').innerText.startsWith('newer')")
        assert page.evaluate("window.marked")
        page.evaluate("document.activeElement.blur()")
        until(page, f"!window.marked && {STANDS}")
        assert messages == []
        server.shutdown()
        server.server_close()
        until(page, "document.querySelector('.watched').innerText.startsWith('no longer')")
        page.close()
