// Scales: values to places, linear or logarithmic, with round ticks.

const LOGARITHMIC_FROM = 20;

class Scale {
  constructor(low, high, start, end, isLog = false) {
    Object.assign(this, { start, end, isLog });
    this.low = isLog ? Math.log(low) : low;
    this.high = isLog ? Math.log(high) : high;
    this.slope = (end - start) / (this.high - this.low);
  }

  /** A scale over what lies between two values, with some room. */
  static over(low, high, start, end, mayBeLog = false) {
    if (!(low <= high)) [low, high] = [0, 1];
    if (mayBeLog && low > 0 && high / low > LOGARITHMIC_FROM) {
      const room = (high / low) ** 0.05;
      return new Scale(low / room, high * room, start, end, true);
    }
    const room = 0.06 * (high - low) || 0.5 * Math.abs(high) || 1;
    return new Scale(low - room, high + room, start, end);
  }

  place(value) {
    return this.start + ((this.isLog ? Math.log(value) : value) - this.low) * this.slope;
  }

  value(place) {
    const at = this.low + (place - this.start) / this.slope;
    return this.isLog ? Math.exp(at) : at;
  }

  ticks(wanted = 6) {
    const [low, high] = this.isLog ? [Math.exp(this.low), Math.exp(this.high)] : [this.low, this.high];
    return (this.isLog ? decades(low, high) : steps(low, high, wanted)).filter(
      (tick) => tick >= low && tick <= high,
    );
  }
}

function decades(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const step of [1, 2, 5]) found.push(Number((step * 10 ** power).toPrecision(6)));
  return found;
}

function steps(low, high, wanted) {
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(Number((i * step).toPrecision(10)));
  return found;
}

/** The smallest and the largest of some lists' finite values. */
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
