"""Class-balanced draws."""

from __future__ import annotations

import numpy as np
import pytest

from nas.tasks.images.split import draw_two

BALANCED = np.repeat(np.arange(10), 100)


def draw(labels, first, second, seed=0):
    return draw_two(labels, first, second, np.random.default_rng(seed))


def test_draw_two_parts_are_disjoint_balanced_and_of_the_requested_size():
    first, second = draw(BALANCED, 333, 150)
    assert (len(first), len(second)) == (333, 150)
    assert not set(first) & set(second)
    assert np.ptp(np.bincount(BALANCED[first])) <= 1
    assert set(np.bincount(BALANCED[second])) == {15}
    for part in (first, second):  # and so are their beginnings
        assert set(np.bincount(BALANCED[part][:50])) == {5}


def test_draw_two_depends_on_the_seed():
    (one, _), (same, _), (other, _) = (draw(BALANCED, 50, 50, seed) for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_draw_two_second_part_does_not_change_with_the_first():
    assert np.array_equal(draw(BALANCED, 100, 200)[1], draw(BALANCED, 700, 200)[1])


def test_draw_two_divides_too_few_items_in_proportion():
    first, second = draw(BALANCED, 3000, 1000)
    assert (len(first), len(second)) == (750, 250)
    assert set(np.concatenate([first, second])) == set(range(1000))


def test_draw_two_puts_a_rare_class_into_both_parts():
    labels = np.repeat([0, 1, 2], [500, 500, 4])
    first, second = draw(labels, 300, 300)
    assert (len(first), len(second)) == (300, 300)
    assert np.bincount(labels[first])[2] == np.bincount(labels[second])[2] == 2


@pytest.mark.parametrize(
    ("first", "second"), [(1, 1), (5, 3), (1, 9), (9, 1), (1, 10**6), (10**6, 1)]
)
def test_draw_two_leaves_neither_part_empty(first, second):
    labels = np.repeat(np.arange(10), 2)
    parts = draw(labels, first, second)
    assert all(len(part) for part in parts)
    assert len(parts[0]) + len(parts[1]) == min(20, first + second)
