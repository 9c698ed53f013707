"""Where the labels of points go, so that they cover neither each other nor what is drawn.

Greedy: each label in turn takes the cheapest of a ring of places around its point. All numbers are
pixels; no drawing library is known here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Point = tuple[float, float]

# Directions in the order of preference (x right, y up) and distances in multiples of the first.
DIRECTIONS: Final = tuple(
    (math.cos(math.radians(angle)), math.sin(math.radians(angle)))
    for angle in (0, 180, 45, -45, 135, -135, 90, -90, 20, -20, 160, -160, 65, -65, 115, -115)
)
DISTANCES: Final = (1.0, 1.8, 2.8, 4.0, 5.5, 7.5, 10.0)
# What a pixel of overlap costs, against a pixel of distance from the point.
OVER_LABEL: Final = 50.0
OVER_DRAWN: Final = 4.0
OUTSIDE: Final = 1000.0
# What it costs to stand nearer to another label's point than to one's own.
AMBIGUOUS: Final = 60.0


@dataclass(frozen=True)
class Box:
    """A rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """Area in common."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)

    def grown(self, margin: float) -> Box:
        """The rectangle with a margin around it."""
        return Box(self.left - margin, self.bottom - margin, self.right + margin, self.top + margin)

    @property
    def area(self) -> float:
        """Its area."""
        return (self.right - self.left) * (self.top - self.bottom)


def place(
    points: Sequence[Point],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    drawn: Iterable[Box] = (),
    *,
    distance: float = 12.0,
) -> list[Box]:
    """A box for each label, of its size, inside the frame if it can be.

    Args:
        drawn: what should stay visible; a label may cover it where it is too crowded.
        distance: of the nearest ring from the point.
    """
    obstacles = [*drawn]
    placed: list[Box] = []
    for point, size in zip(points, sizes, strict=True):
        rivals = [other for other in points if other != point]
        best = (math.inf, frame)
        for radius in DISTANCES:
            for direction in DIRECTIONS:
                box = _box(point, size, direction, radius * distance)
                cost = radius * distance + _cost(box, frame, placed, obstacles)
                cost += AMBIGUOUS * _is_ambiguous(box, point, rivals)
                best = min(best, (cost, box), key=lambda found: found[0])
        placed.append(best[1])
    return placed


def nearest(box: Box, point: Point) -> Point:
    """The point of a box that is nearest to a point: where a leader line ends."""
    x, y = point
    return min(max(x, box.left), box.right), min(max(y, box.bottom), box.top)


def _box(point: Point, size: tuple[float, float], direction: Point, distance: float) -> Box:
    """The box whose side faces the point, at that distance in that direction."""
    (x, y), (width, height), (dx, dy) = point, size, direction
    centre_x = x + dx * distance + _sign(dx) * width / 2
    centre_y = y + dy * distance + _sign(dy) * height / 2
    return Box(
        centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2
    )


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 0.1 else math.copysign(1.0, value)


def _is_ambiguous(box: Box, point: Point, rivals: Iterable[Point]) -> bool:
    own = math.dist(nearest(box, point), point)
    return any(math.dist(nearest(box, rival), rival) < own for rival in rivals)


def _cost(box: Box, frame: Box, placed: Sequence[Box], drawn: Sequence[Box]) -> float:
    around = box.grown(2.0)
    return (
        OVER_LABEL * sum(around.overlap(other) for other in placed)
        + OVER_DRAWN * sum(box.overlap(other) for other in drawn)
        + OUTSIDE * (box.area - box.overlap(frame))
    )
