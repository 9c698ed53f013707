// Label placement: of several positions around its point, each label takes the one of lowest cost.

const ANGLES = [0, 180, 45, -45, 135, -135, 90, -90, 20, -20, 160, -160].map((a) => (a * Math.PI) / 180);
const DISTANCES = [13, 20, 32, 48, 68];
const [OVER_LABEL, OUTSIDE] = [1000, 5000];
const CELL = 6; // pixels
const [LABEL_LETTER, LABEL_HEIGHT] = [6.6, 15];

/** A grid of the areas that labels avoid; each cell holds the largest weight put there. */
class Ground {
  constructor(width, height) {
    this.columns = Math.ceil(width / CELL) + 1;
    this.cells = new Uint8Array(this.columns * (Math.ceil(height / CELL) + 1));
  }

  put(x, y, weight) {
    const at = this.columns * Math.floor(y / CELL) + Math.floor(x / CELL);
    if (weight > this.cells[at]) this.cells[at] = weight;
  }

  /** The sum of the weights under a box. */
  under({ x, y, width, height }) {
    let sum = 0;
    for (let row = Math.floor((y - 2) / CELL); row <= (y + height + 2) / CELL; row++)
      for (let column = Math.floor((x - 4) / CELL); column <= (x + width + 4) / CELL; column++)
        sum += this.cells[this.columns * row + column] || 0;
    return sum;
  }
}

/** Labels as SVG; each entry has x, y, words and a kind. Labels avoid the weights in `ground`. */
function labels(entries, ground, frame) {
  const taken = [];
  return entries.map(({ x, y, words, kind }) => {
    const width = words.length * LABEL_LETTER + 4;
    const places = DISTANCES.flatMap((away) => ANGLES.map((angle) => labelBox(x, y, away, angle, width)));
    const best = least(places, (place) => labelCost(place, taken, ground, frame));
    taken.push(best);
    const line = svg("line", { class: "leader", x1: x, y1: y, x2: best.nearX, y2: best.nearY });
    return svg("g", { class: `label ${kind}` }, best.away > 16 && line,
      svg("text", { x: best.x + width / 2, y: best.y + LABEL_HEIGHT - 4, "text-anchor": "middle" }, words));
  });
}

function labelBox(x, y, away, angle, width) {
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const middle = x + cos * away + Math.sign(Math.round(4 * cos)) * (width / 2);
  const up = y - sin * away - Math.sign(Math.round(4 * sin)) * (LABEL_HEIGHT / 2);
  const nearX = Math.min(Math.max(x, middle - width / 2), middle + width / 2);
  return { x: middle - width / 2, y: up - LABEL_HEIGHT / 2, width, height: LABEL_HEIGHT, away, nearX, nearY: up };
}

function labelCost(box, taken, ground, { left, top, right, bottom }) {
  const isOutside = box.x < left || box.y < top || box.x + box.width > right || box.y + box.height > bottom;
  const isOver = (other) =>
    box.x < other.x + other.width && other.x < box.x + box.width && Math.abs(box.y - other.y) < LABEL_HEIGHT;
  return box.away + (isOutside ? OUTSIDE : OVER_LABEL * taken.filter(isOver).length + ground.under(box));
}

function least(list, costOf) {
  const costs = list.map(costOf);
  return list[costs.indexOf(Math.min(...costs))];
}
