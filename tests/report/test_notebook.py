"""What notebooks show of values: words as on the command line, escaped, in any colours."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import nas
from nas.compiler import formula_of, make_plan


def harmless(text: str) -> None:
    assert not re.search(r"<(script|style|link|iframe|img)|\son\w+=|javascript:", text)
    assert not re.search(r"(?<![-\w])(color|background)\s*:(?! inherit)", text)


def test_a_genome_shows_formula_graph_and_costs() -> None:
    text = nas.show("qana")._repr_html_()
    harmless(text)
    assert formula_of(make_plan(nas.load_genome("qana"))) in unescape(text)
    assert text.count("<svg") == 1
    assert "One block at dim 64, 4 heads, 65 tokens: 3.97 M MACs" in text
    assert "currentColor" in text


def test_a_front_is_its_answer_and_its_table(recorded_run: Path) -> None:
    found = nas.front("example", runs=recorded_run.parent)
    answer = found.to_dict()
    assert json.loads(json.dumps(answer))["run"] == "example"
    text = found._repr_html_()
    harmless(text)
    assert text.count("<tr") == 1 + len(answer["members"])
    shown = " ".join(unescape(text).split())  # some spaces do not break
    assert all(" ".join(member["formula"].split()) in shown for member in answer["members"])
