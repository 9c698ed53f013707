"""The page in a browser: its views, its address, its keyboard, and its requests."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import numpy as np
import pytest
from PIL import Image

from nas.common.errors import RunError
from nas.common.objectives import Objective
from nas.report.columns import Column
from nas.report.page import packing, write_report
from nas.report.run_view import RunView
from nas.report.units import amount
from nas.store import append_answer, open_run
from tests.recorded_run import CONFIRMED, MACS
from tests.report.page.answered import benchmark_best, explain_best
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
    assert "leads standard attention by" in opened.text("h1")
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
    fresh = list(view.values("fresh", str(best.proposal.key)).values())
    assert f"{100 * sum(fresh) / len(fresh):.1f} ± " in told


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


def test_box_below_zero_on_a_logarithmic_axis_ends_at_the_axis(
    look: Callable[..., Any], page_file: Path
) -> None:
    box = look(page_file, "#box=-5,10,-0.5,0.9").page.locator("rect.box")
    sides = [float(box.get_attribute(name)) for name in ("x", "y", "width", "height")]
    assert min(sides) > 0


def test_new_column_of_the_front_is_in_the_table_and_the_filter(
    look: Callable[..., Any], example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new: Column[Any] = Column("nodes", "nodes", lambda m: len(m.proposal.genome.nodes))
    columns = packing.front_columns
    monkeypatch.setattr(packing, "front_columns", lambda view: [*columns(view), new])
    opened = look(write_report(example, tmp_path / "run.html"), "#q=nodes%3D3&sort=nodes:down")
    heads = opened.page.locator("#rows th").all_inner_texts()
    rows = opened.page.locator("#rows tbody tr[data-place]").all_inner_texts()
    assert rows
    assert {row.split("\t")[heads.index("nodes")] for row in rows} == {"3"}


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


def test_table_begins_with_the_best_of_a_minimised_metric(
    look: Callable[..., Any], make_run: Callable[..., Path], tmp_path: Path
) -> None:
    errors = Objective("accuracy", "min", "fraction", "share got wrong", 0.0, 1.0, is_metric=True)
    run = make_run(tmp_path, objectives=(errors, MACS), generations=2)
    opened = look(write_report(run, tmp_path / "run.html"))
    shown = opened.page.locator("#rows tbody tr td.id").all_inner_texts()
    with open_run(run) as store:
        found = RunView.read(store, "run", "run")
    assert shown[0] == found.called(str(found.members[0].proposal.key))


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


@pytest.fixture(scope="module")
def answered(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, whose folder keeps an explanation and a benchmark of its best."""
    folder = tmp_path_factory.mktemp("answered") / "example"
    with edited(example, folder) as database:
        database.execute("DELETE FROM answers")
    explain_best(folder)
    benchmark_best(folder)
    return folder


def test_panel_shows_answers_on_its_mechanism(
    look: Callable[..., Any], answered: Path, tmp_path: Path, view: RunView
) -> None:
    with open_run(answered) as run:
        [answer] = run.answers("explain")
    opened = look(write_report(answered, tmp_path / "run.html"))
    rows = opened.page.locator(".panel.why tbody tr")
    parts = [row for part in ("edits", "path", "controls") for row in answer[part]]
    assert rows.count() == len(parts)
    told = rows.all_inner_texts()
    assert [words.split("\t")[0] for words in told] == opened.page.locator(
        "#why tbody tr td:first-child"
    ).all_inner_texts()
    for row in parts:
        found = row["difference"]
        over = f"{100 * found['mean']:+.1f} ± {100 * found['error']:.1f}".replace("-", "−")
        assert any(
            row["words"] in words and over in words and row["verdict"] in words for words in told
        )
    assert opened.page.locator(".panel.elsewhere tr.own a").get_attribute("data-id") == answer["id"]
    assert "2.611 ± 0.048" in opened.text(".panel.elsewhere tr.own")
    other = view.members[1].digest
    again = look(tmp_path / "run.html", f"#id={other}")
    assert again.page.locator(".panel.why").count() == 0


def test_invalid_answer_is_refused_with_its_command(tmp_path: Path) -> None:
    for kind in ("explain", "benchmark"):
        folder = tmp_path / kind
        shutil.copytree(CONFIRMED, folder)
        append_answer(folder, kind, ["x"], {"id": "0", "metric": 1, "tasks": {}})
        with pytest.raises(RunError, match=f"an answer of `nas {kind}` that cannot be read"):
            write_report(folder, tmp_path / "page.html")


def test_suite_has_a_curve_for_each_task_over_its_epochs(
    look: Callable[..., Any], recorded_run: Path, tmp_path: Path
) -> None:
    names = ["recall.accuracy"] * 2 + ["bytes.bits_per_byte"] * 3
    with edited(recorded_run, tmp_path / "suite") as database:
        for row in database.query("SELECT key, repeat, reports FROM trainings"):
            first = json.loads(row.pop("reports"))[0]
            reports = [
                first | {"epoch": i + 1, "metrics": {name: 0.5 + i / 8, f"{name}_more": 9.0}}
                for i, name in enumerate(names)
            ]
            change = "UPDATE trainings SET reports = :text WHERE key = :key AND repeat = :repeat"
            database.execute(change, **row, text=json.dumps(reports))
        metric = {"name": "recall.accuracy", "unit": "fraction", "direction": "max", "about": ""}
        metrics = json.dumps([metric | {"chance": 0.0, "ideal": 1.0}])
        database.execute("UPDATE run SET metrics = :metrics", metrics=metrics)
    opened = look(write_report(tmp_path / "suite", tmp_path / "suite.html"))
    plots = opened.page.locator(".curves svg")
    titles = [plot.locator("text.axis").first.text_content() for plot in plots.all()]
    assert titles == ["recall, accuracy %", "bytes, bits per byte"]
    epochs = [plot.locator("text.tick[text-anchor=middle]").count() for plot in plots.all()]
    assert epochs == [2, 3]


def test_lineage_names_the_edits(look: Callable[..., Any], page_file: Path) -> None:
    """06ce36bb is 5e54ab23 with an output gate; that one lost W_V."""
    told = look(page_file).text(".lineage ol")
    assert re.search(r"06ce36bb insert.*\+ output_gate.*5e54ab23 project.*− W_V", told, re.DOTALL)


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


def test_grid_names_itself_and_the_active_row_for_screen_readers(
    look: Callable[..., Any], page_file: Path
) -> None:
    opened = look(page_file)
    grid = opened.page.get_by_role("grid", name=re.compile("^Mechanisms. Up and down arrows"))
    grid.focus()
    opened.page.keyboard.press("ArrowDown")
    assert active(opened, grid) == state(opened)["id"][:8]
    opened.page.keyboard.press("End")
    last = counted(opened)[0] - 1
    opened.page.wait_for_selector(f"[data-place='{last}'][aria-selected=true]", state="attached")
    assert grid.get_attribute("aria-activedescendant") == f"row-{last}"
    assert active(opened, grid) == state(opened)["id"][:8]


def active(opened: Any, grid: Any) -> str:
    """The name in the row that a screen reader is told of."""
    row = opened.page.locator(f"#{grid.get_attribute('aria-activedescendant')}")
    return str(row.locator("td.id").inner_text())


def test_generations_are_counted_from_one(
    look: Callable[..., Any], page_file: Path, view: RunView
) -> None:
    """As `nas search` and `nas watch` count them."""
    best, size = view.members[0], view.setup.config.population
    made = view.by_digest[best.digest].proposal.number // size + 1
    opened = look(page_file, "#q=generation%3D1&sort=generation:up")
    assert counted(opened)[0] == sum(m.proposal.number < size for m in view.mechanisms)
    heads = opened.page.locator("#rows th").all_inner_texts()
    first = opened.page.locator("#rows tbody tr[data-place='0'] td")
    assert first.nth(heads.index("gen")).inner_text() == "1"
    assert f"generation {made} by insert" in opened.text(".panel.known")


@pytest.fixture(scope="module")
def all_failed(recorded_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a run in which no training ended well."""
    folder = tmp_path_factory.mktemp("failed") / "failed"
    with edited(recorded_run, folder) as database:
        lost = "status = 'failed', reason = 'diverged', metrics = '{}'"
        database.execute(f"UPDATE trainings SET {lost}")
        database.execute("DELETE FROM estimates")
        database.execute("UPDATE generations SET best = NULL, hypervolume = 0")
    return write_report(folder, folder / "page.html")


def test_run_without_results_can_be_opened(look: Callable[..., Any], all_failed: Path) -> None:
    """A failed row opened nothing, and an arrow key chose `undefined`."""
    opened = look(all_failed)
    opened.page.focus(CHART)
    opened.page.keyboard.press("ArrowRight")
    assert "id" not in state(opened)
    opened.page.click("#rows tbody tr[data-place='0']")
    assert opened.text("#mechanism h2").startswith(
        opened.text("#rows tbody tr[data-place='0'] td.id")
    )
    assert "diverged" in opened.text(".panel.trainings")


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


def test_static_parts_stay_visible_if_a_view_fails(browser: Any, page_file: Path) -> None:
    page = browser.new_page()
    page.add_init_script("delete window.OffscreenCanvas")
    with page.expect_event("pageerror"):
        page.goto(page_file.as_uri())
    assert page.locator("#table .static").is_visible()
    assert page.locator("#chart .static").is_visible()
    page.close()


def test_axes_can_be_chosen(look: Callable[..., Any], page_file: Path) -> None:
    opened = look(page_file)
    opened.page.select_option("#axis-x", "macs")
    opened.page.select_option("#axis-y", "time_ms")
    opened.page.select_option("#axis-as", "score")
    titles = opened.page.locator(f"{CHART} text.axis").all_text_contents()
    assert titles[0].startswith("MACs")
    assert titles[1].startswith("time ms")
    assert state(opened) | {"x": "macs", "y": "time_ms", "as": "score"} == state(opened)


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_the_colour_scheme(
    look: Callable[..., Any], page_file: Path, scheme: str
) -> None:
    opened = look(page_file, color_scheme=scheme)
    shot = Image.open(io.BytesIO(opened.page.locator(CHART).screenshot())).convert("L")
    middle = np.median(np.asarray(shot))
    assert middle > 200 if scheme == "light" else middle < 60


def test_page_fits_a_phone_and_paper(look: Callable[..., Any], page_file: Path) -> None:
    opened = look(page_file, viewport={"width": 360, "height": 740})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    opened.page.emulate_media(media="print")
    assert opened.page.locator("#chart .static svg").is_visible()
    assert not opened.page.locator(CHART).is_visible()


def test_several_runs_lie_over_each_other(
    look: Callable[..., Any], example: Path, recorded_run: Path, tmp_path: Path
) -> None:
    opened = look(write_report([example, recorded_run], tmp_path / "two.html"))
    assert opened.page.locator("[data-toggle]").all_inner_texts() == ["example", "example (2)"]
    both = counted(opened)[0]
    opened.page.click("[data-toggle='example']")
    second = counted(opened)[0]
    assert 0 < second < both
    assert state(opened)["off"] == "0"
    opened.page.click("#rows tbody tr[data-place='0']")
    assert unquote(state(opened)["run"]) == "example (2)"
    assert "example (2)" in opened.text("#mechanism h2")


def test_hostile_texts_are_shown_as_texts(
    look: Callable[..., Any], recorded_run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / f"<b>{'x' * 8}"
    with edited(recorded_run, folder) as database:
        for change in (
            "proposals SET formula = :text, operator = :text",
            "proposals SET name = :text WHERE name IS NOT NULL",
            "trainings SET error = :text, worker = :text",
            "sessions SET command = :text",
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
