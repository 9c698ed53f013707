// The table of all mechanisms: filtered and sorted; only visible rows are elements.

const ROW = 31; // pixels
const SPARE = 8; // additional rows above and below the visible ones

/** The table's columns: run and id, then those that the header declares. */
function tableColumns(declared, runs) {
  const fixed = [
    { key: "run", title: "run", text: (run) => run.name, value: (run) => run.name },
    { key: "id", title: "id", text: (run, i) => run.called(i), value: (run, i) => run.digests[i] },
  ];
  return [
    ...fixed.slice(runs.length > 1 ? 0 : 1),
    ...declared.map((column) => {
      const { key, isNumber } = column;
      const value = isNumber ? (run, i) => run.column(key).values[i] : (run, i) => run.text(key, i);
      const hasError = runs.some((run) => run.columns[key]?.errors);
      const error = hasError ? (run, i) => run.column(key).errors[i] : null;
      return { ...column, value, error, text: (run, i) => run.text(key, i) };
    }),
  ];
}

class Table {
  constructor(root, controls, { runs, state, filter, columns }) {
    Object.assign(this, { runs, state, filter, columns: tableColumns(columns, runs), rows: [] });
    this.head = html("tr", {}, this.columns.map((column) => this.title(column)));
    this.body = html("tbody", { onclick: (event) => this.pick(event) });
    this.grid = html("table", {
      role: "grid", tabindex: "0", onkeydown: (event) => this.type(event),
      "aria-label": "Mechanisms. Up and down arrows, Page up and down, Home and End choose a row.",
    }, html("thead", {}, this.head), this.body);
    this.box = html("div", { class: "rows", onscroll: () => this.fill(true) }, this.grid);
    root.append(this.box);
    this.count = html("span", { class: "count", role: "status" });
    controls.append(...this.controls());
    new ResizeObserver(() => this.fill(true)).observe(this.box);
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
      Object.keys(KINDS).map((name) => html("option", { value: name, selected: name === this.state.get("show") }, name)));
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.matches("input, select")) return;
      event.preventDefault();
      this.search.focus();
    });
    const name = `${this.runs.map((run) => run.name).join("_")}.csv`;
    const download = () => save(name, csv(this.columns, this.rows), "text/csv");
    const load = html("button", { type: "button", id: "csv", onclick: download }, "CSV");
    return [this.search, this.kind, load, this.count];
  }

  title(column) {
    return html("th", { scope: "col", class: column.isNumber ? "number" : "word" },
      html("button", { type: "button", "data-sort": column.key, onclick: () => this.turn(column) }, column.title));
  }

  /** Sort by a column; a second time in the opposite order. */
  turn({ key, isNumber }) {
    const [current, way] = this.state.get("sort").split(":");
    const [first, other] = isNumber ? ["down", "up"] : ["up", "down"];
    this.state.set({ sort: `${key}:${current === key && way === first ? other : first}` });
  }

  /** Filter and sort the rows. */
  order() {
    const [key, way] = this.state.get("sort").split(":");
    const column = this.columns.find((column) => column.key === key) ?? this.columns[0];
    this.rows = this.runs.flatMap((run) => {
      const mask = this.filter.mask(run);
      return run.digests.map((_, i) => ({ run, i })).filter(({ i }) => mask[i]);
    });
    for (const row of this.rows) row.key = column.value(row.run, row.i);
    this.rows.sort(byKey(column.isNumber, way === "down" ? -1 : 1));
    const [shown, count] = [this.rows.length, this.runs.reduce((sum, run) => sum + run.size, 0)];
    this.count.textContent = `${shown.toLocaleString("en")} of ${count.toLocaleString("en")}`;
    for (const button of this.head.querySelectorAll("button")) {
      const order = button.dataset.sort === column.key ? `${way === "down" ? "de" : "a"}scending` : "none";
      button.parentElement.setAttribute("aria-sort", order);
    }
    this.grid.setAttribute("aria-rowcount", shown + 1);
    if (this.search.value.trim() !== this.state.get("q")) this.search.value = this.state.get("q");
    this.kind.value = this.state.get("show");
    this.box.scrollTop = 0;
    this.fill();
  }

  /** Create the visible rows; after scrolling (`hasMoved`) only if other rows are visible. */
  fill(hasMoved = false) {
    const { scrollTop, clientHeight } = this.box;
    const from = Math.max(0, Math.floor(scrollTop / ROW) - SPARE);
    const to = Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / ROW) + SPARE);
    if (hasMoved && `${from} ${to}` === this.visible) return;
    this.visible = `${from} ${to}`;
    const rows = [];
    for (let place = from; place < to; place++) rows.push(this.row(place));
    const gap = (count) => html("tr", { class: "gap", "aria-hidden": "true" }, html("td", { colspan: this.columns.length, height: count * ROW }));
    this.body.replaceChildren(gap(from), ...rows, gap(this.rows.length - to));
    // The focus stays on the grid, since rows come and go; this names the row for screen readers.
    const chosen = rows.find((row) => row.getAttribute("aria-selected") === "true");
    if (chosen) this.grid.setAttribute("aria-activedescendant", chosen.id);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  row(place) {
    const { run, i } = this.rows[place];
    const kind = run.isNamed(i) ? "named" : run.isMember[i] ? "member" : "";
    return html("tr", {
      id: `row-${place}`, class: `${kind} run r${run.index % 6}`, "data-place": place,
      "aria-rowindex": place + 2, "aria-selected": String(this.state.isSelected(run, i)),
    }, this.columns.map((column) => html("td", { class: column.isNumber ? "number" : `word ${column.key}` }, column.text(run, i))));
  }

  pick(event) {
    const row = event.target.closest("tr[data-place]");
    if (row) this.choose(Number(row.dataset.place));
  }

  choose(place) {
    const { run, i } = this.rows[place];
    this.state.select(run, i);
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
    const current = this.rows.findIndex(({ run, i }) => this.state.isSelected(run, i));
    const from = current < 0 ? -Math.sign(step) : current;
    this.choose(Math.min(Math.max(from + step, 0), this.rows.length - 1));
  }
}

/** Compares rows by their keys; unknown numbers come last in either direction. */
function byKey(isNumber, sign) {
  const number = (key) => (Number.isNaN(key) ? Infinity : sign * key);
  // Infinity minus Infinity is NaN: such rows keep their order.
  if (isNumber) return (a, b) => number(a.key) - number(b.key) || 0;
  return (a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign : 0);
}

/** The rows as CSV: whole digests, unrounded numbers, errors beside their means. */
function csv(columns, rows) {
  const fields = columns.flatMap(({ key, value, error }) => [[key, value], ...(error ? [[`${key} error`, error]] : [])]);
  const lines = rows.map(({ run, i }) => fields.map(([, value]) => cell(value(run, i))).join(","));
  return [fields.map(([name]) => cell(name)).join(","), ...lines].join("\r\n") + "\r\n";
}

/** A spreadsheet evaluates a text that begins like a formula; an apostrophe before it marks a text. */
function cell(value) {
  if (typeof value === "number") return Number.isNaN(value) ? "" : String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
