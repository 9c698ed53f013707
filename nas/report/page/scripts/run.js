// A run: mechanisms by index, with their results. Unknown numbers are NaN.

/** The data of the page (nas/report/page/packing.py): JSON in gzip, as base64. */
async function decode(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/** Numbers of a column; JSON has null for NaN. */
function numbers(values) {
  return Float64Array.from(values, (value) => value ?? NaN);
}

/** The start of each of several concatenated lists, and the end of the last one. */
function starts(lengths) {
  const places = [0];
  for (const length of lengths) places.push(places.at(-1) + length);
  return places;
}

class Run {
  /** `about` is the run's entry of the page's data. */
  constructor(about, index) {
    Object.assign(this, about, { index, cache: new Map() });
    this.digests = this.mechanisms.digest;
    this.places = new Map(this.digests.map((digest, i) => [digest, i]));
    this.members = this.front.map((digest) => this.find(digest));
    this.isMember = new Uint8Array(this.size);
    for (const i of this.members) this.isMember[i] = 1;
    this.named = Object.keys(this.names).map((digest) => this.find(digest));
    this.marked = [...new Set([...this.members, ...this.named])];
    this.reference = this.standard === null ? -1 : this.find(this.standard);
  }

  keep(name, make) {
    if (!this.cache.has(name)) this.cache.set(name, make());
    return this.cache.get(name);
  }

  /** Values, standard errors and texts of a column; unknown if this run does not have it. */
  column(key) {
    return this.keep(`column ${key}`, () => {
      const { values, errors, texts } = this.columns[key] ?? {};
      const unknown = () => new Float64Array(this.size).fill(NaN);
      return {
        values: values ? numbers(values) : unknown(),
        errors: errors ? numbers(errors) : unknown(),
        texts: texts ?? { at: () => "" },
      };
    });
  }

  text(key, i) {
    return this.column(key).texts.at(i);
  }

  training(name) {
    return this.trainings[name];
  }

  quantity(name) {
    return this.quantities.find((quantity) => quantity.name === name);
  }

  /** The column of a quantity; `kind` selects estimates or scores of a metric. */
  reading(name, kind = "estimate") {
    return this.column(this.quantity(name)?.[kind]);
  }

  /** The index of the mechanism whose digest starts with the text, or -1. */
  find(digest) {
    if (this.places.has(digest)) return this.places.get(digest);
    return digest ? this.digests.findIndex((other) => other.startsWith(digest)) : -1;
  }

  short(i) {
    return this.digests[i].slice(0, this.idLength);
  }

  /** Titles of the objectives whose value is beyond their limit; such a mechanism is in no front. */
  beyond(i) {
    return this.quantities
      .filter(({ limit, direction, name }) => {
        if (limit === null) return false;
        const value = this.reading(name).values[i];
        return direction === "min" ? value > limit : value < limit;
      })
      .map(({ title }) => title);
  }

  isNamed(i) {
    return this.digests[i] in this.names;
  }

  /** A mechanism's names, or the beginning of its digest. */
  called(i) {
    return (this.names[this.digests[i]] ?? [this.short(i)]).join(" = ");
  }

  genome(i) {
    return JSON.parse(this.mechanisms.genome[i]);
  }

  note(i) {
    return this.mechanisms.note[i];
  }

  parents(i) {
    return this.mechanisms.parents[i];
  }

  /** The rows of a mechanism's trainings. */
  trained(i) {
    const rows = () => Map.groupBy(this.training("mechanism").keys(), (row) => this.training("mechanism")[row]);
    return this.keep("trained", rows).get(i) ?? [];
  }

  /** Means over fresh seeds, by title ("fresh", "long", ...) and metric. */
  confirmed(i) {
    return this.fresh[this.digests[i]] ?? {};
  }

  /** A cost as a multiple of standard attention's. */
  share(i, name) {
    const { values } = this.reading(name);
    return this.reference < 0 ? NaN : values[i] / values[this.reference];
  }

  /** The values of a metric or of the loss that a training reported after each epoch. */
  reports(row, name) {
    const places = this.keep("epochs", () => starts(this.training("epochs")));
    const values = name === "loss" ? this.training("loss") : this.training("curves")[name];
    return [...numbers(values.slice(places[row], places[row + 1]))];
  }
}
