"""Labels stay inside the frame and off each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nas.report.labels import Box, nearest, place

FRAME = Box(0, 0, 1000, 600)


def test_a_lonely_label_stands_beside_its_point() -> None:
    (box,) = place([(500, 300)], [(60, 12)], FRAME)
    assert box == Box(512, 294, 572, 306)


def test_a_label_at_the_edge_turns_inwards() -> None:
    (box,) = place([(990, 590)], [(60, 12)], FRAME)
    assert box.right <= 1000
    assert box.top <= 600


def test_a_label_leaves_the_legend_alone() -> None:
    legend = Box(505, 200, 900, 400)
    (box,) = place([(500, 300)], [(60, 12)], FRAME, [legend])
    assert box.overlap(legend) == 0


@pytest.mark.parametrize("seed", range(5))
def test_crowded_labels_do_not_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = [(float(x), float(y)) for x, y in rng.normal((500, 300), (60, 40), (14, 2))]
    boxes = place(points, [(70, 13)] * 14, FRAME)
    assert all(a.overlap(b) == 0 for a, b in itertools.combinations(boxes, 2))


def test_labels_of_one_place_are_told_apart() -> None:
    boxes = place([(500, 300)] * 6, [(70, 13)] * 6, FRAME)
    assert all(a.overlap(b) == 0 for a, b in itertools.combinations(boxes, 2))


def test_a_label_is_nearest_to_its_own_point() -> None:
    points = [(500.0, 300.0), (500.0, 316.0), (500.0, 332.0)]
    boxes = place(points, [(40, 12)] * 3, FRAME)
    for point, box in zip(points, boxes, strict=True):
        distances = [np.hypot(*np.subtract(nearest(box, p), p)) for p in points]
        assert min(distances) == np.hypot(*np.subtract(nearest(box, point), point))
