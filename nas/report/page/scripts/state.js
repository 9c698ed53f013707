// What a person looks at, kept in the address: a copied address shows the same.

class State {
  /** Defaults are left out of the address; where values are `known`, of an address none but these count. */
  constructor(defaults, known) {
    Object.assign(this, { defaults, known });
    this.watchers = [];
    this.values = this.read();
    addEventListener("hashchange", () => this.adopt(this.read()));
  }

  get(name) {
    return this.values[name];
  }

  /** Change some values, and tell those who watch which ones. */
  set(changes) {
    this.adopt({ ...this.values, ...changes });
    const kept = Object.entries(this.values).filter(([name, value]) => value !== this.defaults[name]);
    history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
  }

  /** Be told which values have changed, as a set of names. */
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
    // A section's name is an address, too: it moves the page and changes nothing.
    if (text && !text.includes("=")) return this.values ?? { ...this.defaults };
    const given = new URLSearchParams(text);
    const isKept = (name) => given.has(name) && (this.known[name]?.includes(given.get(name)) ?? true);
    return Object.fromEntries(
      Object.entries(this.defaults).map(([name, value]) => [name, isKept(name) ? given.get(name) : value]),
    );
  }
}
