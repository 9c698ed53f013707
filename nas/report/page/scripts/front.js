// The front: an interactive scatter plot of all mechanisms by two quantities.

const MARGIN = { left: 62, right: 18, top: 34, bottom: 52 };

class Front {
  constructor(root, controls, { runs, state, filter, tip }) {
    Object.assign(this, { root, runs, state, filter, places: [] });
    this.pointer = new Pointer(this, tip);
    this.canvas = html("canvas", { "aria-hidden": "true" });
    this.over = svg("svg", {
      tabindex: "0", role: "application",
      "aria-label": "The front. Left and right arrows step through its members, Enter opens one, Escape removes the box.",
      onpointermove: (event) => this.pointer.move(event),
      onpointerleave: () => this.pointer.leave(),
      onpointerdown: (event) => this.pointer.press(event),
      onpointerup: (event) => this.pointer.release(event),
      onkeydown: (event) => this.pointer.type(event),
    });
    root.append(html("div", { class: "chart live" }, this.canvas, this.over));
    controls.append(...this.controls());
    new ResizeObserver(() => root.clientWidth !== this.width && this.draw()).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    state.watch((changed) => (["id", "sort"].includes([...changed].join()) ? this.select() : this.draw()));
    this.draw();
  }

  controls() {
    const quantities = this.runs[0].quantities.map(({ name, title }) => [name, title]);
    const choice = (name, words, options) =>
      html("label", {}, words, html("select", { id: `axis-${name}`, onchange: (e) => this.state.set({ [name]: e.target.value, box: "" }) },
        options.map(([value, title]) => html("option", { value, selected: value === this.state.get(name) }, title))));
    this.clear = html("button", { type: "button", onclick: () => this.state.set({ box: "" }) }, "clear box");
    const readings = [["estimate", "estimates"], ["score", "scores"]];
    return [choice("y", "up ", quantities), choice("x", "across ", quantities), choice("as", "metrics as ", readings), this.clear];
  }

  /** Compute the scales and draw everything. */
  draw() {
    const width = this.root.clientWidth;
    if (!width) return;
    const height = Math.round(Math.min(Math.max(width * 0.5, 320), 560));
    const frame = { left: MARGIN.left, top: MARGIN.top, right: width - MARGIN.right, bottom: height - MARGIN.bottom };
    Object.assign(this, { width, height, frame });
    this.clear.hidden = !this.state.get("box");
    this.locate();
    this.paint(sharpened(this.canvas, width, height));
    this.decorate();
  }

  /** Compute the position of every mechanism in pixels; -1 if it has no value. */
  locate() {
    const [x, y, kind] = ["x", "y", "as"].map((name) => this.state.get(name));
    const shown = this.runs.filter((run) => !this.filter.isOff(run));
    this.across = this.runs[0].quantity(x);
    this.up = this.runs[0].quantity(y);
    const { left, right, top, bottom } = this.frame;
    const bars = shown.map((run) => run.marked.flatMap((i) => [...this.bar(run, i, this.up), this.fresh(run, i)?.mean ?? NaN]));
    this.x = Scale.over(range(...shown.map((run) => run.reading(x, kind).values)), left, right, true);
    this.y = Scale.over(range(...shown.map((run) => run.reading(y, kind).values), ...bars), bottom, top, !this.up.isMetric);
    this.places = this.runs.map((run) => {
      const [values, heights] = [run.reading(x, kind).values, run.reading(y, kind).values];
      const [xs, ys] = [new Float32Array(run.size).fill(-1), new Float32Array(run.size).fill(-1)];
      if (shown.includes(run))
        for (let i = 0; i < run.size; i++) {
          const [across, up] = [this.x.place(values[i]), this.y.place(heights[i])];
          if (Number.isFinite(across) && Number.isFinite(up)) [xs[i], ys[i]] = [across, up];
        }
      return { xs, ys };
    });
  }

  bar(run, i, { name }) {
    const { values, errors } = run.reading(name);
    return [values[i] - (errors[i] || 0), values[i] + (errors[i] || 0)];
  }

  /** The mean over fresh seeds of the quantity on the vertical axis. */
  fresh(run, i) {
    return run.confirmed(i).fresh?.[this.up.name];
  }

  paint(context) {
    const colour = colours(this.canvas);
    const paper = colour("card");
    this.stairs = [];
    for (const run of this.runs) {
      const { xs, ys } = this.places[run.index];
      const mask = this.filter.mask(run);
      const isOne = this.runs.length === 1;
      const runColour = colour(`run-${run.index % 6}`);
      const look = { colour: isOne ? colour("cloud") : runColour, isRing: this.state.get("as") === "score" };
      if (mask.includes(0)) cloud(context, xs, ys, mask, 0, { ...look, alpha: isOne ? 0.25 : 0.1 });
      cloud(context, xs, ys, mask, 1, { ...look, alpha: isOne ? 0.85 : 0.35 });
      this.steps(context, run, runColour);
      const marked = run.marked.filter((i) => xs[i] >= 0);
      for (const i of marked) this.paintFresh(context, run, i, colour("fresh"), paper);
      for (const i of marked) {
        context.globalAlpha = mask[i] ? 1 : 0.2;
        this.paintMark(context, run, i, run.isNamed(i) ? "diamond" : "disc", run.isNamed(i) ? colour("named") : runColour, paper);
        context.globalAlpha = 1;
      }
    }
  }

  paintMark(context, run, i, shape, colour, paper) {
    const { xs, ys } = this.places[run.index];
    if (this.state.get("as") === "estimate")
      for (const [quantity, scale, isUp] of [[this.up, this.y, true], [this.across, this.x, false]]) {
        if (!(run.reading(quantity.name).errors[i] > 0)) continue;
        const ends = this.bar(run, i, quantity).map((end) => scale.within(end));
        stroke(context, colour, 1.4, ...ends.map((end) => (isUp ? [xs[i], end] : [end, ys[i]])));
      }
    mark(context, shape, xs[i], ys[i], 5, colour, paper);
  }

  /** The mean over fresh seeds, beside the estimate. */
  paintFresh(context, run, i, colour, paper) {
    const fresh = this.fresh(run, i);
    if (!fresh) return;
    const [x, bar] = [this.places[run.index].xs[i] + 5, fresh.error ?? 0];
    stroke(context, colour, 1.4, [x, this.y.place(fresh.mean - bar)], [x, this.y.place(fresh.mean + bar)]);
    mark(context, "square", x, this.y.place(fresh.mean), 3.6, colour, paper);
  }

  /** The staircase through the members that are non-dominated in these two quantities. */
  steps(context, run, colour) {
    const { xs, ys } = this.places[run.index];
    const signs = [this.across.direction === "min" ? 1 : -1, this.up.direction === "max" ? 1 : -1];
    const members = run.members
      .filter((i) => xs[i] >= 0)
      .sort((a, b) => signs[0] * (xs[a] - xs[b]) || signs[1] * (ys[a] - ys[b]));
    const places = [];
    let best = Infinity;
    for (const i of members) {
      if (signs[1] * ys[i] >= best) continue;
      best = signs[1] * ys[i];
      if (places.length) places.push([xs[i], places.at(-1)[1]]);
      places.push([xs[i], ys[i]]);
    }
    if (!places.length) return;
    places.push([signs[0] > 0 ? this.frame.right : this.frame.left, places.at(-1)[1]]);
    stroke(context, colour, 1.6, ...places);
    this.stairs.push(...along(places));
  }

  /** Axes, labels, the box, and the marks of the selected mechanism. */
  decorate() {
    const { left, right, top, bottom } = this.frame;
    const narrow = this.width < 560;
    const title = ({ title, about }) => (narrow || !about ? title : `${title}: ${about}`);
    const factor = ({ unit }) => (unit === "fraction" ? 100 : 1);
    this.over.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.ring = svg("g", {});
    this.selected = svg("g", {});
    this.rectangle = svg("rect", { class: "box", visibility: "hidden" });
    this.over.replaceChildren(
      ...nodes(axis({ x: this.x, from: top, to: bottom, ticks: narrow ? 4 : 8, factor: factor(this.across) })),
      ...nodes(axis({ y: this.y, from: left, to: right, factor: factor(this.up) })),
      ...this.limits(),
      svg("text", { class: "axis", x: right, y: bottom + 42, "text-anchor": "end" }, title(this.across)),
      svg("text", { class: "axis", x: left - 46, y: top - 16 }, title(this.up)),
      ...labels(narrow ? this.wanted().slice(0, 4) : this.wanted(), this.ground(), this.frame),
      this.selected, this.ring, this.rectangle,
    );
    if (this.filter.ends) {
      const [left, right, low, high] = this.filter.ends;
      const [x, y] = [this.x.within(left), this.y.within(high)];
      this.outline(x, y, this.x.within(right) - x, this.y.within(low) - y);
    }
    this.select();
  }

  /** A line at the limit of each axis, and the area beyond it, whose mechanisms are in no front. */
  limits() {
    const { left, right, top, bottom } = this.frame;
    const area = (x, y, width, height) => svg("rect", { class: "outside", x, y, width, height });
    const line = (x1, y1, x2, y2) => svg("line", { class: "limit", x1, y1, x2, y2 });
    const parts = [];
    for (const [{ limit, direction }, scale, isUp] of [[this.across, this.x, false], [this.up, this.y, true]]) {
      if (limit === null || !(limit > scale.low && limit < scale.high)) continue;
      const place = scale.place(limit);
      const isBelow = direction === "max"; // values below the limit are outside
      if (isUp) {
        const [from, to] = isBelow ? [place, bottom] : [top, place];
        parts.push(area(left, from, right - left, to - from), line(left, place, right, place));
      } else {
        const [from, to] = isBelow ? [left, place] : [place, right];
        parts.push(area(from, top, to - from, bottom - top), line(place, top, place, bottom));
      }
    }
    return parts;
  }

  /** The areas that labels avoid: marks with their bars, the staircase, then the cloud. */
  ground() {
    const ground = new Ground(this.width, this.height);
    for (const run of this.runs) {
      const { xs, ys } = this.places[run.index];
      for (let i = 0; i < run.size; i++) if (xs[i] >= 0) ground.put(xs[i], ys[i], 4);
      for (const i of run.marked) {
        if (xs[i] < 0) continue;
        ground.put(xs[i], ys[i], 60);
        const fresh = this.fresh(run, i);
        if (fresh) ground.put(xs[i] + 5, this.y.place(fresh.mean), 40);
        const [low, high] = this.bar(run, i, this.up).map((end) => this.y.within(end));
        for (let y = high; y <= low; y += 5) ground.put(xs[i], y, 20);
      }
    }
    for (const [x, y] of this.stairs) ground.put(x, y, 40);
    return ground;
  }

  /** Labels: the named mechanisms, and best, knee and cheapest. */
  wanted() {
    return this.runs.flatMap((run) => {
      const { xs, ys } = this.places[run.index];
      const titled = Object.entries(run.titles).map(([digest, titles]) => {
        const i = run.find(digest);
        return { i, words: `${titles.join(", ")}: ${run.called(i)}`, kind: `run r${run.index % 6}` };
      });
      const known = new Set(titled.map(({ i }) => i));
      const named = run.named.filter((i) => !known.has(i)).map((i) => ({ i, words: run.called(i), kind: "named" }));
      return [...titled, ...named]
        .filter(({ i }) => xs[i] >= 0)
        .map((label) => ({ ...label, x: xs[label.i], y: ys[label.i] }));
    });
  }

  /** A ring around the selected mechanism, and a mark at its score. */
  select() {
    const { run, i } = this.state.selected(this.runs);
    this.selected.replaceChildren();
    if (i < 0 || this.places[run.index].xs[i] < 0) return;
    const [x, y] = [this.places[run.index].xs[i], this.places[run.index].ys[i]];
    const score = this.up.isMetric ? this.y.place(run.reading(this.up.name, "score").values[i]) : NaN;
    this.selected.append(
      svg("line", { class: "cross", x1: x, x2: x, y1: this.frame.top, y2: this.frame.bottom }),
      svg("line", { class: "cross", x1: this.frame.left, x2: this.frame.right, y1: y, y2: y }),
      svg("circle", { class: "chosen", cx: x, cy: y, r: 10 }),
    );
    if (Number.isFinite(score)) this.selected.append(svg("circle", { class: "mark ring", cx: x, cy: score, r: 4 }));
  }

  outline(x, y, width, height) {
    for (const [name, value] of Object.entries({ x, y, width, height, visibility: "visible" }))
      this.rectangle.setAttribute(name, value);
  }
}

/** Points at most 12 pixels apart along a polyline, which labels avoid. */
function along(places) {
  return places.slice(1).flatMap(([x, y], i) => {
    const [a, b] = places[i];
    const count = Math.ceil(Math.hypot(x - a, y - b) / 12);
    return Array.from({ length: count }, (_, j) => [a + ((x - a) * j) / count, b + ((y - b) * j) / count]);
  });
}
