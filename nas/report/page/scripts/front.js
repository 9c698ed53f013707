// The front: all mechanisms by two quantities, to point at, to choose, and to draw a box around.

const MARGIN = { left: 62, right: 18, top: 34, bottom: 52 };

/** Where metrics stand: what is believed, or what was scored. */
const READINGS = { estimate: "estimates", score: "scores" };

class Front {
  constructor(root, controls, { runs, state, filter, tip }) {
    Object.assign(this, { root, runs, state, filter, places: [] });
    this.pointer = new Pointer(this, tip);
    this.canvas = html("canvas", { "aria-hidden": "true" });
    this.over = svg("svg", {
      tabindex: "0", role: "application",
      "aria-label": "The front. Left and right arrows step through its members, Enter opens one, Escape ends the box.",
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
    state.watch((changed) => {
      if (changed.size === 1 && changed.has("id")) this.select();
      else if (["x", "y", "as", "box", "q", "show", "off", "run", "id"].some((n) => changed.has(n))) this.draw();
    });
    this.draw();
  }

  controls() {
    const options = this.runs[0].quantities;
    const axis = (name, words) =>
      html("label", {}, words,
        html("select", { id: `axis-${name}`, onchange: (e) => this.state.set({ [name]: e.target.value, box: "" }) },
          options.map((one) => html("option", { value: one.name, selected: one.name === this.state.get(name) }, one.title))));
    const kind = html("select", { id: "axis-as", onchange: (e) => this.state.set({ as: e.target.value, box: "" }) },
      Object.entries(READINGS).map(([value, words]) =>
        html("option", { value, selected: value === this.state.get("as") }, words)));
    this.clear = html("button", { type: "button", onclick: () => this.state.set({ box: "" }) }, "clear box");
    return [axis("y", "up "), axis("x", "across "), html("label", {}, "metrics as ", kind), this.clear];
  }

  /** Everything, from the scales on. */
  draw() {
    const width = this.root.clientWidth;
    if (!width) return;
    const height = Math.round(Math.min(Math.max(width * 0.5, 320), 560));
    Object.assign(this, { width, height, frame: {
      left: MARGIN.left, top: MARGIN.top, right: width - MARGIN.right, bottom: height - MARGIN.bottom,
    } });
    this.clear.hidden = !this.state.get("box");
    this.locate();
    this.paint(sharpened(this.canvas, width, height));
    this.decorate();
  }

  /** Where every mechanism stands, in pixels; what stands nowhere is left of everything. */
  locate() {
    const [x, y, kind] = ["x", "y", "as"].map((name) => this.state.get(name));
    const shown = this.runs.filter((run) => !this.filter.isOff(run));
    this.across = this.runs[0].quantity(x);
    this.up = this.runs[0].quantity(y);
    const { left, right, top, bottom } = this.frame;
    const [lowX, highX] = range(...shown.map((run) => run.values(x, kind)));
    const [lowY, highY] = range(...shown.map((run) => run.values(y, kind)), ...this.bars(shown, y));
    this.x = Scale.over(lowX, highX, left, right, true);
    this.y = Scale.over(lowY, highY, bottom, top, !this.up.isMetric);
    this.places = this.runs.map((run) => {
      const [values, heights] = [run.values(x, kind), run.values(y, kind)];
      const [xs, ys] = [new Float32Array(run.size).fill(-1), new Float32Array(run.size).fill(-1)];
      if (shown.includes(run))
        for (let i = 0; i < run.size; i++) {
          const [across, up] = [this.x.place(values[i]), this.y.place(heights[i])];
          if (Number.isFinite(across) && Number.isFinite(up)) [xs[i], ys[i]] = [across, up];
        }
      return { xs, ys };
    });
  }

  /** The ends of error bars and fresh means: the scale has room for them. */
  bars(runs, name) {
    return runs.map((run) => this.marked(run).flatMap((i) => {
      const [value, error, fresh] = [run.values(name)[i], run.errors(name)[i] || 0, run.fresh(i, name)];
      return [value - error, value + error, fresh?.mean ?? NaN];
    }));
  }

  marked(run) {
    return run.keep("marked", () => [...new Set([...run.members, ...run.named])]);
  }

  paint(context) {
    const colour = colours(this.root);
    const paper = colour("card");
    this.stairs = [];
    this.runs.forEach((run, index) => {
      const { xs, ys } = this.places[index];
      const mask = this.filter.mask(run);
      const isOne = this.runs.length === 1;
      const own = colour(`run-${index % 6}`);
      const looks = { colour: isOne ? colour("cloud") : own, isRing: this.state.get("as") === "score" };
      if (!this.filter.isOpen) cloud(context, xs, ys, mask, 0, { ...looks, alpha: isOne ? 0.25 : 0.1 });
      cloud(context, xs, ys, mask, 1, { ...looks, alpha: isOne ? 0.85 : 0.35 });
      this.steps(context, run, own);
      for (const i of this.marked(run)) this.fresh(context, run, i, colour("fresh"), paper);
      for (const i of this.marked(run)) {
        const isNamed = run.digests[i] in run.names;
        const hue = isNamed ? colour("named") : own;
        context.globalAlpha = mask[i] ? 1 : 0.2;
        this.estimate(context, run, i, isNamed ? "diamond" : "disc", hue, paper);
        context.globalAlpha = 1;
      }
    });
  }

  estimate(context, run, i, shape, colour, paper) {
    const { xs, ys } = this.places[run.index];
    if (xs[i] < 0) return;
    if (this.state.get("as") === "estimate") {
      for (const [quantity, scale, isUp] of [[this.up, this.y, true], [this.across, this.x, false]]) {
        const [value, error] = [run.values(quantity.name)[i], run.errors(quantity.name)[i]];
        if (!quantity.isMetric || !(error > 0)) continue;
        const ends = [scale.place(value - error), scale.place(value + error)];
        stroke(context, colour, 1.4, ...ends.map((end) => (isUp ? [xs[i], end] : [end, ys[i]])));
      }
    }
    mark(context, shape, xs[i], ys[i], 5, colour, paper);
  }

  /** What fresh seeds gave, beside the estimate. */
  fresh(context, run, i, colour, paper) {
    const { xs } = this.places[run.index];
    const found = this.up.isMetric && xs[i] >= 0 ? run.fresh(i, this.up.name) : null;
    if (!found) return;
    const [x, bar] = [xs[i] + 5, found.error || 0];
    stroke(context, colour, 1.4, [x, this.y.place(found.mean - bar)], [x, this.y.place(found.mean + bar)]);
    mark(context, "square", x, this.y.place(found.mean), 3.6, colour, paper);
  }

  /** The staircase of what no other member beats in these two. */
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

  /** Axes, labels, box, and the marks of what is chosen: what changes without the points. */
  decorate() {
    const { left, right, top, bottom } = this.frame;
    const narrow = this.width < 560;
    const scaleX = this.across.unit === "fraction" ? 100 : 1;
    const scaleY = this.up.unit === "fraction" ? 100 : 1;
    const xs = this.x.ticks(narrow ? 4 : 8).map((value) => {
      const at = this.x.place(value);
      return [svg("line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom }),
        svg("text", { class: "tick", x: at, y: bottom + 19, "text-anchor": "middle" }, tick(value * scaleX))];
    });
    const ys = this.y.ticks(6).map((value) => {
      const at = this.y.place(value);
      return [svg("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }),
        svg("text", { class: "tick", x: left - 9, y: at + 4, "text-anchor": "end" }, tick(value * scaleY))];
    });
    const title = (quantity) => (narrow || !quantity.about ? quantity.title : `${quantity.title}: ${quantity.about}`);
    this.over.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.ring = svg("g", {});
    this.chosen = svg("g", {});
    this.rectangle = svg("rect", { class: "box", visibility: "hidden" });
    this.over.replaceChildren(
      svg("g", {}, xs, ys),
      svg("text", { class: "axis", x: right, y: bottom + 42, "text-anchor": "end" }, title(this.across)),
      svg("text", { class: "axis", x: left - 46, y: top - 16 }, title(this.up)),
      ...labels(narrow ? this.wanted().slice(0, 4) : this.wanted(), this.ground(), this.frame),
      this.chosen, this.ring, this.rectangle,
    );
    this.showBox();
    this.select();
  }

  /** What labels should leave free: marks with their bars, the staircase, then the cloud. */
  ground() {
    const ground = new Ground(this.width, this.height);
    for (const run of this.runs) {
      const { xs, ys } = this.places[run.index];
      for (let i = 0; i < run.size; i++) if (xs[i] >= 0) ground.put(xs[i], ys[i], 4);
      for (const i of this.marked(run)) {
        if (xs[i] < 0) continue;
        ground.put(xs[i], ys[i], 60);
        const found = this.up.isMetric && run.fresh(i, this.up.name);
        if (found) ground.put(xs[i] + 5, this.y.place(found.mean), 40);
        const half = this.up.isMetric ? Math.abs(this.y.place(run.errors(this.up.name)[i]) - this.y.place(0)) : 0;
        for (let y = -half; y <= half; y += 5) ground.put(xs[i], ys[i] + y, 20);
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
      const known = new Set(titled.map((one) => one.i));
      const named = run.named.filter((i) => !known.has(i)).map((i) => ({ i, words: run.called(i), kind: "named" }));
      return [...titled, ...named]
        .filter(({ i }) => xs[i] >= 0)
        .map((one) => ({ ...one, x: xs[one.i], y: ys[one.i] }));
    });
  }

  /** Rings around the chosen mechanism, and its three numbers apart. */
  select() {
    const run = this.runs.find((one) => one.name === this.state.get("run"));
    const i = run ? run.find(this.state.get("id")) : -1;
    this.chosen.replaceChildren();
    if (i < 0 || this.places[run.index].xs[i] < 0) return;
    const [x, y] = [this.places[run.index].xs[i], this.places[run.index].ys[i]];
    const score = this.up.isMetric ? this.y.place(run.scores(this.up.name)[i]) : NaN;
    this.chosen.append(
      svg("line", { class: "cross", x1: x, x2: x, y1: this.frame.top, y2: this.frame.bottom }),
      svg("line", { class: "cross", x1: this.frame.left, x2: this.frame.right, y1: y, y2: y }),
      svg("circle", { class: "chosen", cx: x, cy: y, r: 10 }),
    );
    if (Number.isFinite(score)) this.chosen.append(svg("circle", { class: "mark ring", cx: x, cy: score, r: 4 }));
  }

  outline(x, y, width, height) {
    for (const [name, value] of Object.entries({ x, y, width, height, visibility: "visible" }))
      this.rectangle.setAttribute(name, value);
  }

  showBox() {
    if (!this.filter.ends) return;
    const [left, right, low, high] = this.filter.ends;
    const [x, y] = [this.x.place(left), this.y.place(high)];
    this.outline(x, y, this.x.place(right) - x, this.y.place(low) - y);
  }
}

/** Places along a line of straight pieces, some pixels apart: what labels should not cover. */
function along(places) {
  return places.slice(1).flatMap(([x, y], i) => {
    const [fromX, fromY] = places[i];
    const count = Math.ceil(Math.hypot(x - fromX, y - fromY) / 12);
    return Array.from({ length: count }, (_, j) => [fromX + ((x - fromX) * j) / count, fromY + ((y - fromY) * j) / count]);
  });
}
