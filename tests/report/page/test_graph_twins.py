"""The page's graph and that of `nas show --plot` are one drawing, though two languages place it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nas.report.graph import placed
from nas.report.run_view import RunView

pytestmark = pytest.mark.browser
DRAWN = """() => [...document.querySelectorAll(".graph .node")].map((node) => {
  const [box, words] = [node.querySelector("rect"), node.querySelectorAll("text")];
  return [words[0].textContent, words[1]?.textContent ?? "",
          +box.getAttribute("x") + box.getAttribute("width") / 2, +box.getAttribute("y")];
})"""


def test_both_place_every_box_alike(
    look: Callable[..., Any], page_file: Path, content: RunView
) -> None:
    largest = max(content.trained.values(), key=lambda one: len(one.proposal.genome.nodes))
    chosen = [largest.digest, *(member.digest for member in content.members[:3])]
    for digest in chosen:
        opened = look(page_file, f"#run={content.name}&id={digest}")
        opened.page.wait_for_selector(".graph .node")
        genome = content.by_digest[digest].proposal.genome
        boxes = [box for box in placed(genome) if box.kind != "bend"]
        ours = sorted((box.words, box.more, box.x, box.y) for box in boxes)
        theirs = sorted(map(tuple, opened.page.evaluate(DRAWN)))
        assert [one[:2] for one in theirs] == [one[:2] for one in ours]
        left = theirs[0][2] - ours[0][2]
        for own, other in zip(ours, theirs, strict=True):
            assert other[2] - left == pytest.approx(own[2], abs=0.1)
            assert other[3] == own[3]
