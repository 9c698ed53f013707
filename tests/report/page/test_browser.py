"""The page in a browser: its views, its address, its table, and its requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nas.report.page import write_report
from nas.report.page.rendering import address
from nas.report.run_view import RunView
from nas.report.units import amount
from nas.store import open_run
from tests.report.page.conftest import edited, limit_macs

pytestmark = pytest.mark.browser

CHART = ".chart.wide"
ROWS = ".rows tbody tr"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m'\"&"


def counted(opened: Any) -> tuple[int, int]:
    """How many mechanisms the table shows, and of how many."""
    shown, whole = opened.text("#count").replace(",", "").split(" of ")
    return int(shown), int(whole)


def point(opened: Any, digest: str) -> Any:
    """The largest mark of a mechanism in the front, which is drawn last."""
    return opened.page.locator(f'{CHART} a[href$="id={digest}"]').last


def test_front_selects_and_explains_mechanisms_without_a_request(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    opened, best, cheapest = look(page_file), view.members[0], view.members[-1]
    assert opened.requests == [page_file.as_uri()]
    assert "mha is established" in opened.text("h1")
    assert opened.text("#mechanism h2").startswith(view.called(best))
    assert opened.page.locator(f"{CHART} a.chosen").count() > 0

    point(opened, cheapest.digest).hover()
    tip = opened.text("#tip")
    assert view.called(cheapest) in tip
    assert " ".join(cheapest.proposal.formula.split()) in " ".join(tip.split())
    values = cheapest.objectives
    for text in (
        amount(values["accuracy"], "fraction", cheapest.errors["accuracy"]),
        amount(cheapest.scores["accuracy"], "fraction"),
        amount(values["macs"]),
        amount(values["time_ms"]),
        f"{100 * float(view.fresh['fresh'][cheapest.key].mean or 0):.1f} ± ",
    ):
        assert text in tip
    opened.page.keyboard.press("Escape")
    assert not opened.page.locator("#tip").is_visible()

    point(opened, cheapest.digest).click()
    opened.wait_for_mechanism(view.called(cheapest))
    assert opened.fragment == address(view.name, cheapest.digest)
    again = look(page_file, opened.fragment)
    assert again.text("#mechanism h2") == opened.text("#mechanism h2")
    assert again.page.locator(f"{ROWS}[aria-selected=true] .id").inner_text() == (
        view.called(cheapest)
    )


def test_table_is_searched_sorted_and_selects(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    opened = look(page_file)
    assert counted(opened) == (len(view.mechanisms), len(view.mechanisms))
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("softmax crossover")
    wanted = [
        m
        for m in view.mechanisms
        if "softmax" in m.proposal.formula and "crossover" in m.proposal.operator
    ]
    assert counted(opened)[0] == len(wanted) > 0
    time = opened.page.locator(".rows th", has_text="time ms")
    for pick in (max, min):
        time.click()
        first = opened.page.locator(f"{ROWS}:visible").first
        chosen = pick(wanted, key=lambda m: m.costs["time_ms"])
        assert first.locator(".id").inner_text() == view.called(chosen)
    first.locator("td").nth(2).click()
    opened.wait_for_mechanism(view.called(chosen))


def test_panel_shows_graph_source_parents_and_trainings_by_task(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    opened, best = look(page_file), view.members[0]
    nodes = len(best.proposal.genome.nodes)
    assert opened.page.locator(".panel.graph svg rect").count() > nodes
    assert "class Attention" in str(opened.page.text_content(".take details pre"))
    rows = opened.page.locator(".trainings tbody tr").all_inner_texts()
    cells = [row.split("\t")[:2] for row in rows]
    assert cells == [
        *([["vit-cifar10", "search"]] * len(best.trainings)),
        *([["vit-cifar10", "fresh"]] * 5),
        *([["comparison", "long"]] * 5),
    ]
    titles = opened.page.locator(".curves figcaption").all_inner_texts()
    assert titles == ["accuracy % under vit-cifar10", "accuracy % under comparison"]
    assert opened.page.locator(".curves .fresh").count() == 10
    link = opened.page.locator(".lineage a").nth(1)
    parent = str(link.get_attribute("href"))
    assert parent == address(view.name, best.proposal.parents[0])
    link.click()
    opened.wait_for_mechanism(view.called(view.by_digest[best.proposal.parents[0]]))
    assert opened.fragment == parent


def test_limits_are_marked_and_said(
    look: Callable[..., Any], example: Path, tmp_path: Path
) -> None:
    folder = limit_macs(example, tmp_path / "limited", 2e6)
    with open_run(folder) as run:
        view = RunView.read(run)
    outside = next(c for c in view.candidates if c.costs["macs"] > 2e6)
    page = write_report(folder, tmp_path / "limited.html")
    opened = look(page, address("limited", outside.digest))
    assert "outside: MACs at most 2.00 M" in opened.text("#mechanism .known")


@pytest.fixture(scope="module")
def all_failed(recorded_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a run in which no training ended well."""
    folder = tmp_path_factory.mktemp("failed") / "failed"
    with edited(recorded_run, folder) as database:
        lost = (
            "'$.evaluation.status', 'failed', '$.evaluation.reason', 'diverged', "
            "'$.evaluation.metrics', json('{}')"
        )
        database.execute(f"UPDATE trainings SET record = json_set(record, {lost})")
        database.execute("DELETE FROM estimates")
        empty = "json_set(record, '$.best', NULL, '$.hypervolume', 0.0, '$.front', json('[]'))"
        database.execute(f"UPDATE generations SET record = {empty}")
    return write_report(folder, folder / "page.html")


def test_run_without_a_front_and_unknown_addresses(
    look: Callable[..., Any], all_failed: Path, page_file: Path, view: RunView
) -> None:
    opened = look(all_failed, "#run=lost&id=lost")
    assert opened.text("#front .note") == "run 'failed' has no trained mechanism to draw."
    assert opened.text("#mechanism .note") == "Select one in the front or in the table."
    opened.page.locator(f"{ROWS} td:nth-child(2)").first.click()
    opened.page.locator("#mechanism .trainings", has_text="diverged").wait_for()
    other = look(page_file, "#run=lost&id=lost")
    assert other.text("#mechanism h2").startswith(view.called(view.members[0]))


def test_page_can_be_read_without_scripts(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    opened = look(page_file, java_script_enabled=False)
    assert opened.page.locator(ROWS).count() == len(view.mechanisms)
    assert opened.page.locator(f"{CHART} svg").is_visible()
    assert not opened.page.locator("#words").is_visible()
    assert "nas search --space attention_v2" in opened.text("#repeat")


def test_page_fits_a_phone_and_paper(look: Callable[..., Any], page_file: Path) -> None:
    opened = look(page_file, viewport={"width": 360, "height": 740})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert opened.page.locator(".chart.narrow svg").is_visible()
    assert not opened.page.locator(CHART).is_visible()
    opened.page.emulate_media(media="print")
    assert opened.page.locator(f"{CHART} svg").is_visible()
    assert not opened.page.locator(".top").is_visible()


def test_several_runs_share_the_front_and_the_table(
    look: Callable[..., Any], example: Path, recorded_run: Path, tmp_path: Path
) -> None:
    opened = look(write_report([recorded_run, example], tmp_path / "two.html"))
    assert opened.page.locator("h1").count() == 2
    chart = str(opened.page.text_content(CHART))
    names = set(opened.page.locator(f"{ROWS} td:first-child").all_inner_texts())
    assert len(names) == 2
    assert all(name in chart for name in names)


def test_hostile_texts_are_shown_as_texts(
    look: Callable[..., Any], recorded_run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / f"<b>{'x' * 8}"
    with edited(recorded_run, folder) as database:
        for change in (
            "proposals SET record = json_set(record, '$.formula', :text, '$.operator', :text)",
            "proposals SET record = json_set(record, '$.name', :text) WHERE record ->> 'name' > ''",
            "trainings SET record = json_set(record, '$.evaluation.error', :text, "
            "'$.evaluation.worker', :text)",
            "sessions SET record = json_set(record, '$.command', :text)",
        ):
            database.execute(f"UPDATE {change}", text=HOSTILE)
    with open_run(folder) as run:
        best = RunView.read(run).members[0]
    opened = look(write_report(folder, tmp_path / "hostile.html"))
    point(opened, best.digest).dispatch_event("pointerover")
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")
    for place in ("#tip", f"{CHART}", ".rows", "#mechanism", "#repeat"):
        assert shown in str(opened.page.text_content(place)), place
    whole = opened.page.content()
    assert "\u202e" not in whole
    assert "\x1b" not in whole
    assert opened.page.locator("img, b b").count() == 0
