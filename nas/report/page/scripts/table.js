// The table of all mechanisms: filtered, sorted, and only as many rows made as can be seen.

const ROW = 31; // pixels
const SPARE = 8; // rows made beyond what can be seen

class Table {
  constructor(root, controls, { runs, state, filter }) {
    Object.assign(this, { runs, state, filter, columns: columns(runs), rows: [] });
    this.head = html("tr", {}, this.columns.map((column) => this.title(column)));
    this.body = html("tbody", { onclick: (event) => this.pick(event) });
    this.grid = html("table", {
      role: "grid", tabindex: "0", onkeydown: (event) => this.type(event),
      "aria-label": "Mechanisms. Up and down arrows, Page up and down, Home and End choose a row.",
    }, html("thead", {}, this.head), this.body);
    this.box = html("div", { class: "rows", onscroll: () => this.fill() }, this.grid);
    root.append(this.box);
    this.count = html("span", { class: "count", role: "status" });
    controls.append(...this.controls());
    new ResizeObserver(() => this.fill()).observe(this.box);
    state.watch((changed) => {
      if (["q", "box", "show", "off", "sort", "x", "y", "as"].some((name) => changed.has(name))) this.order();
      else if (changed.has("id") || changed.has("run")) this.fill();
    });
    this.order();
  }

  controls() {
    this.search = html("input", {
      type: "search", id: "words", value: this.state.get("q"), autocomplete: "off", spellcheck: "false",
      placeholder: "words, -words, macs<1M, accuracy>38%", "aria-label": "Filter",
      oninput: (event) => this.state.set({ q: event.target.value.trim() }),
    });
    this.kind = html("select", { id: "show", "aria-label": "Which mechanisms", onchange: (e) => this.state.set({ show: e.target.value }) },
      SHOWN.map((name) => html("option", { value: name, selected: name === this.state.get("show") }, name)));
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.matches("input, select")) return;
      event.preventDefault();
      this.search.focus();
    });
    const load = html("button", { type: "button", id: "csv", onclick: () => save(`${this.runs.map((run) => run.name).join("_")}.csv`, csv(this.columns, Array.from(this.rows, (row) => this.of(row))), "text/csv") }, "CSV");
    return [this.search, this.kind, load, this.count];
  }

  title(column) {
    return html("th", { scope: "col", class: column.isNumber ? "number" : "word" },
      html("button", { type: "button", "data-sort": column.key, onclick: () => this.turn(column) }, column.title));
  }

  /** Sort by a column; once more, the other way round. */
  turn({ key, isNumber }) {
    const [current, way] = this.state.get("sort").split(":");
    const first = isNumber ? "down" : "up";
    const other = first === "down" ? "up" : "down";
    this.state.set({ sort: `${key}:${current === key && way === first ? other : first}` });
  }

  /** Which rows are shown, and in which order: rows are numbered over all runs. */
  order() {
    this.first = [];
    let count = 0;
    for (const run of this.runs) {
      this.first.push(count);
      count += run.size;
    }
    const rows = new Uint32Array(count);
    let shown = 0;
    this.runs.forEach((run, index) => {
      const mask = this.filter.mask(run);
      for (let i = 0; i < run.size; i++) if (mask[i]) rows[shown++] = this.first[index] + i;
    });
    const [key, way] = this.state.get("sort").split(":");
    const column = this.columns.find((one) => one.key === key) ?? this.columns[0];
    this.rows = sorted(rows.subarray(0, shown), this.keys(column, count), way === "down" ? -1 : 1);
    this.count.textContent = `${shown.toLocaleString("en")} of ${count.toLocaleString("en")}`;
    for (const button of this.head.querySelectorAll("button")) {
      const isOwn = button.dataset.sort === column.key;
      button.parentElement.setAttribute("aria-sort", isOwn ? (way === "down" ? "descending" : "ascending") : "none");
    }
    this.grid.setAttribute("aria-rowcount", shown + 1);
    if (this.search.value.trim() !== this.state.get("q")) this.search.value = this.state.get("q");
    this.kind.value = this.state.get("show");
    this.box.scrollTop = 0;
    this.fill();
  }

  /** What a column's rows are sorted by, kept once made. */
  keys(column, count) {
    const make = () => {
      const keys = column.isNumber ? new Float64Array(count) : new Array(count);
      this.runs.forEach((run, index) => {
        for (let i = 0; i < run.size; i++) keys[this.first[index] + i] = column.value(run, i);
      });
      return keys;
    };
    return this.runs[0].keep(`keys ${column.key}`, make);
  }

  /** The run and the number in it of a row. */
  of(row) {
    let index = this.runs.length - 1;
    while (this.first[index] > row) index--;
    return [this.runs[index], row - this.first[index]];
  }

  /** Make the rows that can be seen. */
  fill() {
    const { scrollTop, clientHeight } = this.box;
    const from = Math.max(0, Math.floor(scrollTop / ROW) - SPARE);
    const to = Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / ROW) + SPARE);
    const made = [];
    for (let place = from; place < to; place++) made.push(this.row(place));
    const gap = (count) => html("tr", { class: "gap", "aria-hidden": "true" }, html("td", { colspan: this.columns.length, height: count * ROW }));
    this.body.replaceChildren(gap(from), ...made, gap(this.rows.length - to));
    // The focus stays on the grid, since rows come and go; this says which row it is at.
    const chosen = made.find((row) => row.getAttribute("aria-selected") === "true");
    if (chosen) this.grid.setAttribute("aria-activedescendant", chosen.id);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  row(place) {
    const [run, i] = this.of(this.rows[place]);
    const isChosen = run.name === this.state.get("run") && run.digests[i] === this.state.get("id");
    const kind = run.digests[i] in run.names ? "named" : run.isMember[i] ? "member" : "";
    return html("tr", {
      id: `row-${place}`, class: `${kind} run r${run.index % 6}`, "data-place": place, "aria-rowindex": place + 2, "aria-selected": String(isChosen),
    }, this.columns.map((column) => html("td", { class: column.isNumber ? "number" : `word ${column.key}` }, column.text(run, i))));
  }

  pick(event) {
    const row = event.target.closest("tr[data-place]");
    if (row) this.choose(Number(row.dataset.place));
  }

  choose(place) {
    const [run, i] = this.of(this.rows[place]);
    this.state.set({ run: run.name, id: run.digests[i] });
    const top = place * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    const room = this.box.clientHeight - 2 * ROW;
    if (top > this.box.scrollTop + room) this.box.scrollTop = top - room;
  }

  type(event) {
    const page = Math.floor(this.box.clientHeight / ROW) - 1;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !this.rows.length || event.target !== this.grid) return;
    event.preventDefault();
    const current = this.rows.findIndex((row) => {
      const [run, i] = this.of(row);
      return run.name === this.state.get("run") && run.digests[i] === this.state.get("id");
    });
    const from = current < 0 ? -Math.sign(step) : current;
    this.choose(Math.min(Math.max(from + step, 0), this.rows.length - 1));
  }
}

/** Rows by their keys, in a direction; what has no number comes last either way. */
function sorted(rows, keys, way) {
  if (Array.isArray(keys))
    return rows.sort((a, b) => (keys[a] < keys[b] ? -way : keys[a] > keys[b] ? way : 0) || a - b);
  const signed = keys.map((key) => (Number.isNaN(key) ? Infinity : way * key));
  // Infinity less Infinity is no number, so that the place decides.
  return rows.sort((a, b) => signed[a] - signed[b] || a - b);
}
