"""Serve the page of a running search on this machine under a secret address.

The server listens on 127.0.0.1, so that other machines cannot connect. It answers one address,
which contains a random token that other users and web pages do not know. A request whose Host
header is another name is refused, which prevents DNS rebinding by foreign web pages.

The page regularly asks whether the run's change token (``nas.store.change_token``) differs from the
token of its content. The server renders the page again only if it differs.
"""

from __future__ import annotations

import hmac
import re
import secrets
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from nas.common.errors import NasError, RunError
from nas.common.interrupts import garbage_collection_paused
from nas.common.text import message
from nas.report.page.writer import Watched, page
from nas.report.run_view import RunView
from nas.store import change_token, open_run

ADDRESS: Final = "127.0.0.1"
# Any port: the address may be forwarded from another one.
HOST: Final = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?")
TOKEN_BYTES: Final = 32
PAUSE_SECONDS: Final = 3.0
# Maximum share of a core that rendering the page may use, for each open browser.
MAX_RENDERING_SHARE: Final = 0.05


class PageServer(ThreadingHTTPServer):
    """A server of the page of one run at the secret address in its attribute ``url``.

    The server is a context manager that closes its socket at the end.

    Args:
        folder: folder of the run.
        label: name of the run as typed on the command line.
        port: port to listen on; 0 for a free port.

    Raises:
        RunError: there is no such run, or the port is not available.
    """

    daemon_threads = True

    def __init__(self, folder: Path, label: str, port: int = 0) -> None:
        open_run(folder).close()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise RunError(
                f"port {port} of {ADDRESS} is not available ({error.strerror}); choose "
                "another with --port, or leave it out for a free one."
            ) from error
        self.path = f"/{secrets.token_urlsafe(TOKEN_BYTES)}"
        self.url = f"http://{ADDRESS}:{self.server_address[1]}{self.path}"
        self._folder, self._label = folder, label
        self._lock = threading.Lock()
        self._rendered: tuple[str, bytes] = "", b""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback of the current error, unless the client has disconnected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def change_token(self) -> str:
        """Return the run's current change token, which differs after each change of the run."""
        return change_token(self._folder)

    def page(self) -> tuple[str, bytes]:
        """Return the run's change token and the page as bytes.

        The page is rendered only if the run has changed; concurrent requests share a rendering.

        Raises:
            RunError: the run can no longer be read.
        """
        with self._lock:
            now = self.change_token()
            if now != self._rendered[0]:
                began = time.process_time()
                with garbage_collection_paused(), open_run(self._folder) as run:
                    view = RunView.read(run, self._label)
                    pause = max(PAUSE_SECONDS, (time.process_time() - began) / MAX_RENDERING_SHARE)
                    watched = Watched(now, round(pause, 1))
                    self._rendered = now, page([view], watched).encode()
            return self._rendered


class _Handler(BaseHTTPRequestHandler):
    """A handler that answers GET and HEAD requests for the secret address and refuses others."""

    server: PageServer
    server_version, sys_version = "nas", ""
    timeout = 10.0

    def do_GET(self) -> None:
        if self._is_allowed():
            try:
                token, text = self.server.page()
            except NasError as error:
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, message(str(error)).encode())
            else:
                self._answer(HTTPStatus.OK, text, "text/html", token)

    def do_HEAD(self) -> None:
        """Answer a HEAD request with status 304 if the run is unchanged, else with status 200.

        The request's header If-None-Match contains the change token of the displayed page. The
        run's record is not read.
        """
        if self._is_allowed():
            now = self.server.change_token()
            is_known = self.headers.get("If-None-Match") == f'"{now}"'
            self._answer(
                HTTPStatus.NOT_MODIFIED if is_known else HTTPStatus.OK, b"", "text/html", now
            )

    def log_message(self, *_: Any) -> None:
        """Log nothing, because the address of a request is secret."""

    def _is_allowed(self) -> bool:
        hosts = self.headers.get_all("Host") or []
        is_ours = len(hosts) == 1 and HOST.fullmatch(hosts[0]) is not None
        path = self.path.encode(errors="surrogateescape")
        if is_ours and hmac.compare_digest(path, self.server.path.encode()):
            return True
        self._answer(HTTPStatus.FORBIDDEN, b"This is not the address that nas watch printed.\n")
        return False

    def _answer(
        self, status: HTTPStatus, text: bytes, kind: str = "text/plain", tag: str | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        if tag is not None:
            self.send_header("ETag", f'"{tag}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
