// Which mechanisms are shown: those of runs that are on, of a kind, in the box, with the words.

const KINDS = {
  all: () => true,
  front: (run, i) => run.isMember[i] === 1,
  named: (run, i) => run.digests[i] in run.names,
  confirmed: (run, i) => run.confirmed(i).length > 0,
  failed: (run, i) => ["failed", "stopped", "rejected"].includes(run.state(i)),
};
const COMPARED = /^([a-z_]+)(<=|>=|<|>|=)(-?[\d.]+(?:e-?\d+)?)([kmg%]?)$/;
const FACTORS = { "": 1, k: 1e3, m: 1e6, g: 1e9, "%": 0.01 };

const SHOWN = Object.keys(KINDS);

/** A mask for each run, kept until something that it depends on has changed. */
class Filter {
  constructor(runs, state) {
    Object.assign(this, { runs, state, key: null, masks: [] });
  }

  /** A one for each mechanism of a run that is shown. */
  mask(run) {
    const key = ["q", "box", "x", "y", "as", "show", "off"].map((name) => this.state.get(name)).join("\n");
    if (key !== this.key) {
      this.key = key;
      this.masks = this.runs.map((one) => this.made(one));
    }
    return this.masks[run.index];
  }

  get isOpen() {
    return !this.state.get("q") && !this.state.get("box") && this.state.get("show") === "all";
  }

  isOff(run) {
    return this.state.get("off").split(",").includes(String(run.index));
  }

  made(run) {
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
    const across = run.values(this.state.get("x"), this.state.get("as"));
    const up = run.values(this.state.get("y"), this.state.get("as"));
    return [(i) => across[i] >= left && across[i] <= right && up[i] >= low && up[i] <= high];
  }

  words(run) {
    return this.state
      .get("q")
      .toLowerCase()
      .replace(/\s*([<>]=?|=)\s*/g, "$1")
      .split(/\s+/)
      .filter(Boolean)
      .map((word) => compared(run, word) ?? contains(run, word));
  }
}

/** "accuracy>37%", "macs<1m", "generation=3": a comparison with a number. */
function compared(run, word) {
  const [, name, sign, number, factor] = COMPARED.exec(word) ?? [];
  const found = name && run.quantities.find((one) => one.name === name || one.title.toLowerCase() === name);
  if (!found && !["generation", "p"].includes(name)) return null;
  const values = found ? run.values(found.name) : name === "p" ? run.of("p") : null;
  const value = (i) => (values ? values[i] : run.generation(i));
  const whole = found?.unit === "fraction" && factor === "" && Math.abs(number) > 1 ? 0.01 : 1;
  const bound = Number(number) * FACTORS[factor] * whole;
  return {
    "<": (i) => value(i) < bound,
    "<=": (i) => value(i) <= bound,
    ">": (i) => value(i) > bound,
    ">=": (i) => value(i) >= bound,
    "=": (i) => Math.abs(value(i) - bound) <= 1e-9 * Math.abs(bound),
  }[sign];
}

/** A word that must be found; with a minus before it, must not. */
function contains(run, word) {
  const isWanted = !word.startsWith("-") || word === "-";
  const sought = isWanted ? word : word.slice(1);
  const texts = run.keep("searched", () =>
    run.digests.map((digest, i) =>
      [digest, run.called(i), run.of("formula").at(i), run.of("operator").at(i), run.state(i)]
        .join(" ")
        .toLowerCase(),
    ),
  );
  return (i) => texts[i].includes(sought) === isWanted;
}
