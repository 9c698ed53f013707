"""A page of the recorded example, opened in the browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nas.report.page import write_report
from nas.report.run_view import RunView
from nas.store import open_run
from nas.store.database import Database
from nas.store.folder import DATABASE_FILE
from tests.recorded_run import CONFIRMED

# The page sets this once every view is ready.
READY = "html[data-ready]"


@contextmanager
def edited(run: Path, target: Path) -> Iterator[Database]:
    """The database of a copy of a run's folder, to write to."""
    shutil.copytree(run, target)
    with Database(target / DATABASE_FILE, "write") as database, database.transaction():
        yield database


def limit_macs(run: Path, target: Path, limit: float) -> Path:
    """Copy a run; in the copy, multiply-adds have a limit, and p(front) is 0 beyond it."""
    with edited(run, target) as database:
        setup = json.loads(database.query("SELECT record FROM run")[0][0])
        for objective in setup["objectives"]:
            objective["limit"] = limit if objective["name"] == "macs" else None
        database.execute("UPDATE run SET record = :new", new=json.dumps(setup))
        database.execute(
            "UPDATE estimates SET record = "
            "json_set(record, '$.p', 0, '$.is_member', json('false')) "
            "WHERE record ->> '$.means.macs' > :limit",
            limit=limit,
        )
    return target


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, since reading a database may leave files beside it."""
    folder = tmp_path_factory.mktemp("runs") / "example"
    shutil.copytree(CONFIRMED, folder)
    return folder


@pytest.fixture(scope="session")
def view(example: Path) -> RunView:
    with open_run(example) as run:
        return RunView.read(run, "example", "example")


@pytest.fixture(scope="session")
def page_file(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(example, tmp_path_factory.mktemp("page") / "example.html")


class Opened:
    """An open page, its console messages and errors, and its requests."""

    def __init__(self, browser: Any, path: Path, fragment: str, options: dict[str, Any]) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, **options}
        )
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: self.messages.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri() + fragment)
        if options.get("java_script_enabled", True):
            self.page.wait_for_selector(READY, state="attached")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def wait_for_mechanism(self, name: str) -> None:
        """Wait for the panel of a mechanism, since an event of the browser renders it."""
        self.page.locator("#mechanism h2", has_text=re.compile(f"^{re.escape(name)}")).wait_for()

    @property
    def fragment(self) -> str:
        return str(self.page.evaluate("location.hash"))


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens pages, and checks in the end that none printed, failed or sent a request."""
    opened: list[Opened] = []

    def look(path: Path, fragment: str = "", **options: Any) -> Opened:
        opened.append(Opened(browser, path, fragment, options))
        return opened[-1]

    yield look
    for one in opened:
        one.context.close()
        assert one.messages == []
        assert [url for url in one.requests if not url.startswith(("file:", "blob:"))] == []
