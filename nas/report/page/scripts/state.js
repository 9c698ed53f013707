// The state of the page, stored in its address: a copied address shows the same view.

class State {
  /** The address omits defaults. `known` lists the allowed values of a name; others are ignored. */
  constructor(defaults, known) {
    Object.assign(this, { defaults, known });
    this.watchers = [];
    this.values = this.read();
    addEventListener("hashchange", () => this.adopt(this.read()));
  }

  get(name) {
    return this.values[name];
  }

  /** Change some values, and notify the watchers. */
  set(changes) {
    this.adopt({ ...this.values, ...changes });
    const kept = Object.entries(this.values).filter(([name, value]) => value !== this.defaults[name]);
    history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
  }

  /** The run and index of the selected mechanism; the index is -1 if there is none. */
  selected(runs) {
    const run = runs.find((run) => run.name === this.get("run"));
    return { run, i: run ? run.find(this.get("id")) : -1 };
  }

  isSelected(run, i) {
    return run.name === this.get("run") && run.digests[i] === this.get("id");
  }

  select(run, i) {
    this.set({ run: run.name, id: run.digests[i] });
  }

  /** Call a function with the set of names of changed values. */
  watch(watcher) {
    this.watchers.push(watcher);
  }

  adopt(values) {
    const changed = Object.keys(this.defaults).filter((name) => values[name] !== this.values[name]);
    this.values = values;
    if (changed.length) for (const watcher of this.watchers) watcher(new Set(changed));
  }

  read() {
    const text = location.hash.slice(1);
    // A link to a section scrolls the page and does not change the state.
    if (text && !text.includes("=")) return this.values ?? { ...this.defaults };
    const address = new URLSearchParams(text);
    const isKept = (name) => address.has(name) && (this.known[name]?.includes(address.get(name)) ?? true);
    return Object.fromEntries(
      Object.entries(this.defaults).map(([name, value]) => [name, isKept(name) ? address.get(name) : value]),
    );
  }
}
