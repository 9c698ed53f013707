"""Tables and figures say of a difference what the test says: each sign, mark and colour is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nas.report.page.rendering import address, render
from nas.report.page.sections import confirmations
from nas.report.run_view import RunView

from .claims import corrected_sides
from .test_verdict import alone, drawn, fail

SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
def test_page_colours_a_difference_by_its_side(example: RunView, seed: int) -> None:
    rng = np.random.default_rng(seed)
    view, gains = drawn(alone(example), rng)
    failing = str(rng.choice([*gains]))
    view = fail(view, failing, 0)
    (table,) = confirmations([view])
    keys = {address(view.name, c.digest): key for key, c in view.trained.items()}
    shown = {}
    for (place, _), cells in table["rows"]:
        leads = [drawn["verdict"] for _, _, drawn in cells if drawn]
        shown |= dict.fromkeys([keys[place]], leads[0]) if leads else {}
    scores: dict[str, Any] = {key: [0.36 + g for g in own] for key, own in gains.items()}
    scores[failing] = [None]
    scores["mha"] = [0.36] * max(map(len, gains.values()))
    sides = corrected_sides(scores, "mha")
    assert failing not in shown
    assert {key: sides[key] for key in shown} == shown
    html = render("holds.html", confirmed=[table], explanations=[], views=[view])
    for side in ("better", "worse", "undecided"):
        assert html.count(f'class="interval {side}"') == [*shown.values()].count(side)
