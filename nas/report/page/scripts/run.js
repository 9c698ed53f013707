// A run: mechanisms by index, with their results. Unknown numbers are NaN.

class Run {
  /** `about` is the run's entry of the header (nas/report/page/packing.py), `read` decodes a column. */
  constructor(about, read, index) {
    Object.assign(this, about, { index, read, cache: new Map() });
    this.digests = read(this.mechanisms.digest);
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
      const numbers = values ? this.read(values) : unknown();
      return {
        values: numbers,
        errors: errors ? this.read(errors) : unknown(),
        texts: texts ? this.read(texts) : values ? numbers : { at: () => "" },
      };
    });
  }

  text(key, i) {
    return this.column(key).texts.at(i);
  }

  training(name) {
    return this.keep(`training ${name}`, () => this.read(this.trainings[name]));
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
    return JSON.parse(this.keep("genome", () => this.read(this.mechanisms.genome)).at(i));
  }

  note(i) {
    return this.keep("note", () => this.read(this.mechanisms.note)).at(i);
  }

  parents(i) {
    return JSON.parse(this.keep("parents", () => this.read(this.mechanisms.parents)).at(i));
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
    const values =
      name === "loss" ? this.training("loss") : this.keep(`curve ${name}`, () => this.read(this.trainings.curves[name]));
    return [...values.subarray(places[row], places[row + 1])];
  }
}
