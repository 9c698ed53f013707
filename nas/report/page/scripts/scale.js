// Scales: values to pixels, linear or logarithmic, with round ticks.

const LOGARITHMIC_FROM = 20; // largest over smallest value
const PREFIXES = ["", " k", " M", " G", " T", " P"];

class Scale {
  constructor(low, high, start, end, isLog = false) {
    const [to, from] = isLog ? [Math.log, Math.exp] : [Number, Number];
    Object.assign(this, { low, high, start, to, from, isLog });
    this.slope = (end - start) / (to(high) - to(low));
  }

  /** A scale over a range of values, with a margin at both ends. */
  static over([low, high], start, end, mayBeLog = false) {
    if (!(low <= high)) [low, high] = [0, 1];
    if (mayBeLog && low > 0 && high / low > LOGARITHMIC_FROM) {
      const room = (high / low) ** 0.05;
      return new Scale(low / room, high * room, start, end, true);
    }
    const room = 0.06 * (high - low) || 0.5 * Math.abs(high) || 1;
    return new Scale(low - room, high + room, start, end);
  }

  place(value) {
    return this.start + (this.to(value) - this.to(this.low)) * this.slope;
  }

  /** The place of a value clamped to the scale; a logarithmic scale has no place for 0. */
  within(value) {
    return this.place(Math.min(Math.max(value, this.low), this.high));
  }

  value(place) {
    return this.from(this.to(this.low) + (place - this.start) / this.slope);
  }

  /** Round values within the scale. */
  ticks(count = 6) {
    const { low, high } = this;
    return (this.isLog ? decades(low, high) : steps(low, high, count)).filter((tick) => tick >= low && tick <= high);
  }
}

function decades(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const step of [1, 2, 5]) ticks.push(Number((step * 10 ** power).toPrecision(6)));
  return ticks;
}

function steps(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((step) => step * power >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(Number((i * step).toPrecision(10)));
  return ticks;
}

/** The smallest and the largest finite value of some lists. */
function range(...lists) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists)
    for (const value of list)
      if (Number.isFinite(value)) {
        if (value < low) low = value;
        if (value > high) high = value;
      }
  return [low, high];
}

/** The text of a tick: 200000 is "200 k". */
function tick(value) {
  const size = Math.abs(value) >= 1000 ? Math.min(5, Math.floor(Math.log10(Math.abs(value)) / 3)) : 0;
  return `${Number((value / 1000 ** size).toPrecision(6))}${PREFIXES[size]}`.replace("-", "−");
}

/** Grid lines and labels of ticks as SVG, of a scale across (`x`) or up (`y`). */
function axis({ x, y, from, to, ticks, factor = 1 }) {
  const scale = x ?? y;
  return scale.ticks(ticks).map((value) => {
    const at = scale.place(value);
    const [line, label] = x
      ? [{ x1: at, x2: at, y1: from, y2: to }, { x: at, y: to + 19, "text-anchor": "middle" }]
      : [{ x1: from, x2: to, y1: at, y2: at }, { x: from - 9, y: at + 4, "text-anchor": "end" }];
    return [svg("line", { class: "grid", ...line }), svg("text", { class: "tick", ...label }, tick(value * factor))];
  });
}
