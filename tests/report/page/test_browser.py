"""The page in a browser: its views, its address, its keyboard, and its requests."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from PIL import Image

from nas.report.page import write_report
from nas.report.run_view import RunView
from nas.report.units import amount
from nas.store import open_run
from tests.report.page.conftest import edited, limit_macs

pytestmark = pytest.mark.browser

CHART = ".chart svg"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m'\"&"


def counted(opened: Any) -> tuple[int, int]:
    """How many mechanisms the table shows, and of how many."""
    shown, whole = opened.text("#filter .count").replace(",", "").split(" of ")
    return int(shown), int(whole)


def state(opened: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(opened.fragment.lstrip("#")).items()}


def hover(opened: Any, selector: str) -> None:
    """Point at the middle of something in the chart."""
    opened.page.locator(CHART).scroll_into_view_if_needed()
    box = opened.page.locator(selector).bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def drag(opened: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw a box in the chart; places are shares of its width and height."""
    opened.page.locator(CHART).scroll_into_view_if_needed()
    box = opened.page.locator(CHART).bounding_box()
    at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    opened.page.mouse.move(*at[0])
    opened.page.mouse.down()
    opened.page.mouse.move(*at[1], steps=4)
    opened.page.mouse.up()


def test_page_sends_no_request_and_draws_front_and_timeline(
    look: Callable[..., Any], page_file: Path
) -> None:
    opened = look(page_file)
    assert opened.requests == [page_file.as_uri()]
    assert "standard attention is established" in opened.text("h1")
    shot = Image.open(io.BytesIO(opened.page.locator(CHART).screenshot()))
    assert len(shot.convert("RGB").getcolors(1_000_000)) > 100
    bars = Image.open(io.BytesIO(opened.page.locator("#timeline canvas").screenshot()))
    assert len(bars.convert("RGB").getcolors(1_000_000)) > 20


def test_hover_shows_the_values_of_the_store(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    opened, best = look(page_file), view.members[0]
    hover(opened, "circle.chosen")
    told = opened.text("#tip")
    assert best.digest[:8] in told
    assert " ".join(best.proposal.formula.split()) in " ".join(told.split())
    assert amount(best.objectives["accuracy"], "fraction", best.errors["accuracy"]) in told
    assert amount(best.scores["accuracy"], "fraction") in told
    assert amount(best.objectives["macs"]) in told
    assert amount(best.objectives["time_ms"]) in told
    fresh = view.fresh["fresh"][best.key].mean
    assert fresh is not None
    assert f"{100 * fresh:.1f} ± " in told


def test_box_filters_the_table_and_is_kept_in_the_address(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    opened = look(page_file)
    drag(opened, (0.3, 0.1), (0.6, 0.5))
    left, right, low, high = map(float, state(opened)["box"].split(","))
    values = [m.objectives for m in view.candidates]
    inside = sum(left <= v["time_ms"] <= right and low <= v["accuracy"] <= high for v in values)
    assert 0 < inside < len(values)
    assert counted(opened) == (inside, len(view.mechanisms))
    opened.page.click("#rows tbody tr[data-place='1']")
    chosen = state(opened)["id"]
    again = look(page_file, opened.fragment)
    assert counted(again) == counted(opened)
    assert state(again) == state(opened)
    assert again.text("#mechanism h2").startswith(chosen[:8])
    assert again.page.locator("rect.box").get_attribute("visibility") == "visible"
    again.page.click("text=clear box")
    assert counted(again)[0] == len(view.mechanisms)


def test_limits_are_marked_and_what_lies_outside_can_be_shown(
    look: Callable[..., Any], example: Path, tmp_path: Path
) -> None:
    limit = 2e6
    folder = limit_macs(example, tmp_path / "limited", limit)
    opened = look(write_report(folder, tmp_path / "limited.html"))
    opened.page.select_option("#axis-x", "macs")
    assert opened.page.locator(f"{CHART} line.limit").count() == 1
    assert opened.page.locator(f"{CHART} rect.outside").count() == 1
    opened.page.select_option("#show", "outside the limits")
    with open_run(folder) as run:
        view = RunView.read(run)
    outside = [c for c in view.candidates if c.costs["macs"] > limit]
    assert all(member.costs["macs"] <= limit for member in view.members)
    shown, _ = counted(opened)
    assert len(outside) <= shown < len(view.mechanisms)
    opened.page.locator("#rows tr[data-place='0']").click()
    assert "outside the limits" in opened.text("#mechanism .known")


def test_words_and_comparisons_filter_and_columns_sort(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    opened = look(page_file)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("softmax macs<1M -crossover")
    wanted = [
        m
        for m in view.mechanisms
        if "softmax" in f"{m.proposal.formula} {m.proposal.operator}".lower()
        and m.proposal.operator != "crossover"
        and m.costs.get("macs", 1e9) < 1e6
    ]
    assert counted(opened)[0] == len(wanted) > 0
    opened.page.click("[data-sort='time_ms']")
    opened.page.click("[data-sort='time_ms']")
    first = opened.page.locator("#rows tbody tr[data-place='0'] td.id").inner_text()
    least = min(wanted, key=lambda m: m.costs["time_ms"])
    assert first == view.called(str(least.key))
    with opened.page.expect_download() as download:
        opened.page.click("#csv")
    lines = Path(download.value.path()).read_bytes().decode().split("\r\n")
    assert len(lines) == len(wanted) + 2
    assert least.digest in lines[1]
    assert repr(least.costs["time_ms"]) in lines[1]


def test_panel_shows_graph_curves_trainings_and_lineage(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    opened, best = look(page_file), view.members[0]
    genome = best.proposal.genome
    streams = {ref for node in genome.nodes for ref in node.inputs if isinstance(ref, str)}
    assert opened.page.locator(".graph svg .node").count() == len(genome.nodes) + len(streams) + 1
    assert "class Attention" in str(opened.page.text_content(".take details pre"))
    assert opened.page.locator(".curves svg .curve.own").count() == 2 * len(best.trainings)
    rows = opened.page.locator(".trainings tbody tr")
    assert rows.count() == len(best.trainings) + 10
    steps = opened.page.locator(".lineage li")
    parents = view.by_digest[best.digest].proposal.parents
    assert steps.count() > 1
    link = steps.nth(1).locator("a").first
    assert link.get_attribute("data-id") in parents
    link.click()
    assert state(opened)["id"] in parents
    assert opened.text("#mechanism h2").startswith(state(opened)["id"][:8])


def test_keyboard_steps_through_front_and_table(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    opened = look(page_file)
    opened.page.focus(CHART)
    opened.page.keyboard.press("ArrowLeft")
    order = sorted(view.members, key=lambda m: m.objectives["time_ms"])
    before = order[order.index(view.members[0]) - 1]
    assert state(opened)["id"] == before.digest
    assert before.digest[:8] in opened.text("#tip")
    opened.page.focus("#rows table")
    opened.page.keyboard.press("Home")
    assert state(opened).get("id", view.members[0].digest) == view.members[0].digest


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


def test_address_with_unknown_values_shows_the_defaults(
    look: Callable[..., Any], all_failed: Path
) -> None:
    lost = "#x=lost&y=lost&as=lost&show=lost&run=lost&sort=lost&id=lost&box=a,b,c,d"
    opened, plain = look(all_failed, lost), look(all_failed)
    assert counted(opened) == counted(plain)
    assert opened.page.locator(f"{CHART} text.axis").all_text_contents() == (
        plain.page.locator(f"{CHART} text.axis").all_text_contents()
    )
    assert [opened.page.input_value(f"#{name}") for name in ("axis-x", "axis-as", "show")] == [
        "macs",
        "estimate",
        "all",
    ]


def test_page_can_be_read_without_scripts(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    opened = look(page_file, java_script_enabled=False)
    assert opened.page.locator("#table tbody tr").count() == len(view.members)
    assert opened.page.locator("#chart .static svg").is_visible()
    named = sum(key in view.trained for key in view.names)
    assert opened.page.locator("#chart .mark.diamond").count() == named
    assert not opened.page.locator("#axes").is_visible()
    assert "nas search --space attention_v2" in opened.text("#repeat")


def test_page_fits_a_phone_and_paper(look: Callable[..., Any], page_file: Path) -> None:
    opened = look(page_file, viewport={"width": 360, "height": 740})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    opened.page.emulate_media(media="print")
    assert opened.page.locator("#chart .static svg").is_visible()
    assert not opened.page.locator(CHART).is_visible()


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
            "sessions SET record = json_set(record, '$.session.command', :text)",
        ):
            database.execute(f"UPDATE {change}", text=HOSTILE)
    opened = look(write_report(folder, tmp_path / "hostile.html"))
    hover(opened, "circle.chosen")
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")
    for place in ("#tip", "#rows", "#mechanism", "#course", "#repeat"):
        assert shown in opened.text(place), place
    whole = opened.page.content()
    assert "\u202e" not in whole
    assert "\x1b" not in whole
    assert opened.page.locator("img, b b").count() == 0
