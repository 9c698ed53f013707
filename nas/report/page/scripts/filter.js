// The filter of mechanisms: by kind, by the box in the front, by words, and by visible runs.

const KINDS = {
  all: () => true,
  front: (run, i) => run.isMember[i] === 1,
  "outside the limits": (run, i) => run.beyond(i).length > 0,
  named: (run, i) => run.isNamed(i),
  confirmed: (run, i) => run.digests[i] in run.fresh,
  failed: (run, i) => ["failed", "stopped", "rejected"].includes(run.text("state", i)),
};
const COMPARISON = /^([a-z_]+)(<=|>=|<|>|=)(-?[\d.]+(?:e-?\d+)?)([kmg%]?)$/;
const FACTORS = { "": 1, k: 1e3, m: 1e6, g: 1e9, "%": 0.01 };
const ALIASES = { p: "p_non_dominated" };

/** Computes a mask for each run and caches it until the filter's state changes. */
class Filter {
  constructor(runs, state) {
    Object.assign(this, { runs, state, key: null, masks: [] });
  }

  /** 1 for each mechanism of a run that is shown, else 0. */
  mask(run) {
    const key = ["q", "box", "x", "y", "as", "show", "off"].map((name) => this.state.get(name)).join("\n");
    if (key !== this.key) {
      this.key = key;
      this.masks = this.runs.map((run) => this.compute(run));
    }
    return this.masks[run.index];
  }

  isOff(run) {
    return this.state.get("off").split(",").includes(String(run.index));
  }

  compute(run) {
    const mask = new Uint8Array(run.size);
    if (this.isOff(run)) return mask;
    const tests = [...this.words(run), ...this.box(run)];
    const show = this.state.get("show");
    if (show !== "all") tests.push((i) => KINDS[show](run, i));
    if (!tests.length) return mask.fill(1);
    for (let i = 0; i < run.size; i++) mask[i] = tests.every((test) => test(i)) ? 1 : 0;
    return mask;
  }

  /** The box's left, right, low and high end, or null where there is none. */
  get ends() {
    const ends = this.state.get("box").split(",").map(Number);
    return ends.length === 4 && ends.every(Number.isFinite) ? ends : null;
  }

  box(run) {
    if (!this.ends) return [];
    const [left, right, low, high] = this.ends;
    const [across, up] = ["x", "y"].map((axis) => run.reading(this.state.get(axis), this.state.get("as")).values);
    return [(i) => across[i] >= left && across[i] <= right && up[i] >= low && up[i] <= high];
  }

  words(run) {
    const words = this.state.get("q").toLowerCase().replace(/\s*([<>]=?|=)\s*/g, "$1").split(/\s+/);
    return words.filter(Boolean).map((word) => compared(run, word) ?? contains(run, word));
  }
}

/** "accuracy>37%", "macs<1m", "generation=3": a comparison of a quantity or a column with a number. */
function compared(run, word) {
  const [, name, sign, number, factor] = COMPARISON.exec(word) ?? [];
  const quantity = name && run.quantities.find((one) => one.name === name || one.title.toLowerCase() === name);
  const key = ALIASES[name] ?? name;
  if (!quantity && !run.columns[key]?.texts) return null;
  const { values } = quantity ? run.reading(quantity.name) : run.column(key);
  const whole = quantity?.unit === "fraction" && factor === "" && Math.abs(number) > 1 ? 0.01 : 1;
  const bound = Number(number) * FACTORS[factor] * whole;
  return {
    "<": (i) => values[i] < bound,
    "<=": (i) => values[i] <= bound,
    ">": (i) => values[i] > bound,
    ">=": (i) => values[i] >= bound,
    "=": (i) => Math.abs(values[i] - bound) <= 1e-9 * Math.abs(bound),
  }[sign];
}

/** A test that a word occurs, or does not occur if a minus precedes it. */
function contains(run, word) {
  const isWanted = !word.startsWith("-") || word === "-";
  const text = isWanted ? word : word.slice(1);
  const words = (digest, i) => [digest, run.called(i), ...["formula", "operator", "state"].map((key) => run.text(key, i))];
  const texts = run.keep("searched", () => run.digests.map((digest, i) => words(digest, i).join(" ").toLowerCase()));
  return (i) => texts[i].includes(text) === isWanted;
}
