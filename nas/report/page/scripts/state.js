// What the page shows, kept in its address: a copied address shows the same.

class State {
  /** The address leaves out defaults; where `known` lists values, others in an address are ignored. */
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

  /** The selected mechanism: its run and its index, -1 where there is none. */
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
    // The name of a section is an address, too: it scrolls the page and changes nothing.
    if (text && !text.includes("=")) return this.values ?? { ...this.defaults };
    const given = new URLSearchParams(text);
    const isKept = (name) => given.has(name) && (this.known[name]?.includes(given.get(name)) ?? true);
    return Object.fromEntries(
      Object.entries(this.defaults).map(([name, value]) => [name, isKept(name) ? given.get(name) : value]),
    );
  }
}
