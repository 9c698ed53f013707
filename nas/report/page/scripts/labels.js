// Where labels stand: on a ring around their point, where they cover least.

import { svg } from "./dom.js";

const ANGLES = [0, 180, 45, -45, 135, -135, 90, -90, 20, -20, 160, -160].map((a) => (a * Math.PI) / 180);
const DISTANCES = [11, 20, 32, 48, 68];
const [OVER_LABEL, OVER_MARK, OUTSIDE] = [1000, 40, 5000];
const [LETTER, HEIGHT] = [6.6, 15];

/** Labels as SVG: each of `wanted` has x, y, words and a kind; `marks` should not be covered. */
export function labels(wanted, marks, frame) {
  const taken = [];
  return wanted.map(({ x, y, words, kind }) => {
    const width = words.length * LETTER + 4;
    const places = DISTANCES.flatMap((away) => ANGLES.map((angle) => box(x, y, away, angle, width)));
    const best = least(places, (place) => cost(place, taken, marks, frame));
    taken.push(best);
    const line = svg("line", { class: "leader", x1: x, y1: y, x2: best.nearX, y2: best.nearY });
    return svg("g", { class: `label ${kind}` }, best.away > 24 && line,
      svg("text", { x: best.x + width / 2, y: best.y + HEIGHT - 4, "text-anchor": "middle" }, words));
  });
}

function box(x, y, away, angle, width) {
  const across = x + Math.cos(angle) * (away + width / 2);
  const up = y - Math.sin(angle) * (away + HEIGHT / 2);
  const nearX = Math.min(Math.max(x, across - width / 2), across + width / 2);
  return { x: across - width / 2, y: up - HEIGHT / 2, width, height: HEIGHT, away, nearX, nearY: up };
}

function cost(place, taken, marks, frame) {
  const isOutside =
    place.x < frame.left || place.y < frame.top ||
    place.x + place.width > frame.right || place.y + place.height > frame.bottom;
  const labelsUnder = taken.filter((other) => overlaps(place, other)).length;
  const marksUnder = marks.filter((mark) => contains(place, mark)).length;
  return place.away + (isOutside ? OUTSIDE : 0) + OVER_LABEL * labelsUnder + OVER_MARK * marksUnder;
}

function overlaps(a, b) {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

function contains(place, [x, y]) {
  const room = 5;
  return (
    x > place.x - room && x < place.x + place.width + room &&
    y > place.y - room && y < place.y + place.height + room
  );
}

/** The one with the smallest cost. */
export function least(list, costOf) {
  let [best, low] = [list[0], Infinity];
  for (const one of list) {
    const found = costOf(one);
    if (found < low) [best, low] = [one, found];
  }
  return best;
}
