// A run: its mechanisms by number, and what is known of each. Numbers that are not known are NaN.

class Run {
  /** Made from what the header says of a run; `read` gives a column. */
  constructor(about, read, index) {
    Object.assign(this, about, { index, kept: new Map() });
    const { mechanisms, trainings } = about;
    this.of = (name) => this.keep(name, () => read(mechanisms[name]));
    this.training = (name) => this.keep(`training ${name}`, () => read(trainings[name]));
    this.column = (group, name) =>
      this.keep(`${group} ${name}`, () => {
        const found = (mechanisms[group] ?? {})[name];
        return found ? read(found) : new Float64Array(this.size).fill(NaN);
      });
    this.metric = (name) =>
      this.keep(`metric ${name}`, () => {
        const found = trainings.metrics[name];
        return found ? read(found) : new Float64Array(trainings.mechanism.length).fill(NaN);
      });
    this.curve = (name) => this.keep(`curve ${name}`, () => read(trainings.curves[name]));
    this.metricNames = Object.keys(trainings.metrics);
    this.quantities = this.listed(Object.keys(mechanisms.costs));
    this.digests = this.of("digest");
    this.members = this.front.map((digest) => this.find(digest));
    this.isMember = new Uint8Array(this.size);
    for (const i of this.members) this.isMember[i] = 1;
    this.reference = this.standard === null ? -1 : this.find(this.standard);
    this.named = Object.keys(this.names).map((digest) => this.find(digest));
  }

  /** Objectives first, then the other costs and metrics. */
  listed(costs) {
    const known = new Set(this.objectives.map((one) => one.name));
    const other = (name, isMetric) => ({
      name, title: header(name), about: "", unit: "", direction: isMetric ? "max" : "min", isMetric,
    });
    return [
      ...this.objectives,
      ...costs.filter((name) => !known.has(name)).map((name) => other(name, false)),
      ...this.metricNames.filter((name) => !known.has(name)).map((name) => other(name, true)),
    ];
  }

  quantity(name) {
    return this.quantities.find((one) => one.name === name);
  }

  keep(name, make) {
    if (!this.kept.has(name)) this.kept.set(name, make());
    return this.kept.get(name);
  }

  /** The number of the mechanism whose digest is or begins so, or -1. */
  find(digest) {
    const places = this.keep("places", () => new Map(this.digests.map((own, i) => [own, i])));
    if (places.has(digest)) return places.get(digest);
    return digest ? this.digests.findIndex((own) => own.startsWith(digest)) : -1;
  }

  short(i) {
    return this.digests[i].slice(0, this.idLength);
  }

  /** A mechanism's name, else the beginning of its digest. */
  called(i) {
    return (this.names[this.digests[i]] ?? [this.short(i)]).join(" = ");
  }

  state(i) {
    return this.of("state").at(i);
  }

  /** The generation that a mechanism was proposed in; the first is 1, as for whoever watches. */
  generation(i) {
    return 1 + Math.floor(this.of("number")[i] / this.population);
  }

  genome(i) {
    return JSON.parse(this.of("genome").at(i));
  }

  parents(i) {
    const { starts: places, values } = this.of("parents");
    return [...values.subarray(places[i], places[i + 1])];
  }

  /** The numbers of a mechanism's trainings. */
  trained(i) {
    const { places, rows } = this.keep("trained", () => grouped(this.training("mechanism"), this.size));
    return [...rows.subarray(places[i], places[i + 1])];
  }

  /** Means of a metric over each mechanism's own trainings, where all ended well. */
  scores(name) {
    return this.keep(`scores ${name}`, () => {
      const found = new Float64Array(this.size).fill(NaN);
      const values = this.metricNames.includes(name) ? this.metric(name) : [];
      const [sums, counts] = [new Float64Array(this.size), new Int32Array(this.size)];
      const own = this.training("mechanism");
      values.forEach((value, row) => ((sums[own[row]] += value), counts[own[row]]++));
      for (let i = 0; i < this.size; i++)
        if (counts[i] && this.state(i) === "ok") found[i] = sums[i] / counts[i];
      return found;
    });
  }

  /** Where mechanisms stand: by estimate, by score where nothing is believed; costs as counted. */
  values(name, kind = "estimate") {
    if (!this.quantity(name)?.isMetric) return this.column("costs", name);
    if (kind === "score") return this.scores(name);
    return this.keep(`values ${name}`, () => {
      const scores = this.scores(name);
      return this.column("estimates", name).map((value, i) => (Number.isNaN(value) ? scores[i] : value));
    });
  }

  errors(name) {
    return this.column("errors", name);
  }

  /** A metric with fresh seeds of a part ("fresh", "long", ...), or null. */
  fresh(i, name, title = "fresh") {
    const found = this.confirmed(i).filter((one) => one.title === title && name in one.metrics);
    return found.length ? spread(found.map((one) => one.metrics[name])) : null;
  }

  confirmed(i) {
    const by = this.keep("confirmed", () => Map.groupBy(this.confirmations, (one) => one.digest));
    return by.get(this.digests[i]) ?? [];
  }

  /** How many times standard attention's a cost is. */
  share(i, name) {
    return this.reference < 0 ? NaN : this.column("costs", name)[i] / this.column("costs", name)[this.reference];
  }

  /** What a training reported after each epoch: a metric, or "loss". */
  reports(row, name) {
    const places = this.keep("epoch starts", () => starts(this.training("epochs")));
    const values = name === "loss" ? this.training("losses") : this.curve(name);
    return [...values.subarray(places[row], places[row + 1])];
  }
}
