// Pointing at the front: hovering, choosing, drawing a box, and stepping through it by keyboard.

const REACH = 18; // pixels from which a point is still meant
const CLICK = 4; // pixels that a pointer may slip in a click

class Pointer {
  constructor(front, tip) {
    Object.assign(this, { front, tip, from: null });
  }

  /** The nearest mechanism within reach; marked ones are meant from further away. */
  nearest(x, y) {
    let [found, low] = [null, REACH ** 2];
    this.front.runs.forEach((run, index) => {
      const { xs, ys } = this.front.places[index];
      const mask = this.front.filter.mask(run);
      for (let i = 0; i < xs.length; i++) {
        const away = (xs[i] - x) ** 2 + (ys[i] - y) ** 2;
        if (away < low && mask[i] && xs[i] >= 0) [found, low] = [{ run, i }, away];
      }
      for (const i of this.front.marked(run)) {
        const away = 0.3 * ((xs[i] - x) ** 2 + (ys[i] - y) ** 2);
        if (away < low && mask[i] && xs[i] >= 0) [found, low] = [{ run, i }, away];
      }
    });
    return found;
  }

  at(event) {
    const { left, top, width } = this.front.over.getBoundingClientRect();
    const scale = this.front.width / width;
    return [(event.clientX - left) * scale, (event.clientY - top) * scale];
  }

  move(event) {
    const [x, y] = this.at(event);
    if (this.from) return this.stretch(x, y);
    const found = this.nearest(x, y);
    this.front.ring.replaceChildren();
    if (!found) return this.tip.hide();
    this.halo(found);
    this.tip.show(event.clientX, event.clientY, ...this.said(found));
  }

  halo({ run, i }) {
    const { xs, ys } = this.front.places[run.index];
    this.front.ring.replaceChildren(svg("circle", { class: "hover", cx: xs[i], cy: ys[i], r: 9 }));
  }

  said({ run, i }) {
    const found = this.front.up.isMetric && lead(run, i, this.front.up.name, "fresh");
    const line = found && html("p", { class: "tip-lead" }, `${found} over mha, between equal fresh seeds`);
    return [...brief(run, i, this.front.runs.length > 1), line].filter(Boolean);
  }

  leave() {
    if (this.from) return;
    this.front.ring.replaceChildren();
    this.tip.hide();
  }

  press(event) {
    if (event.button !== 0) return;
    this.from = this.at(event);
    this.front.over.setPointerCapture(event.pointerId);
  }

  stretch(x, y) {
    const [x0, y0] = this.from;
    if (Math.hypot(x - x0, y - y0) < CLICK) return;
    this.tip.hide();
    this.front.outline(Math.min(x, x0), Math.min(y, y0), Math.abs(x - x0), Math.abs(y - y0));
  }

  release(event) {
    if (!this.from) return;
    const [[x0, y0], [x1, y1]] = [this.from, this.at(event)];
    this.from = null;
    if (Math.hypot(x1 - x0, y1 - y0) < CLICK) {
      const found = this.nearest(x1, y1);
      if (found) this.front.state.set({ run: found.run.name, id: found.run.digests[found.i] });
      else this.front.state.set({ box: "" });
      return;
    }
    const ends = [
      ...[x0, x1].map((at) => this.front.x.value(at)).sort((a, b) => a - b),
      ...[y0, y1].map((at) => this.front.y.value(at)).sort((a, b) => a - b),
    ];
    this.front.state.set({ box: ends.map((end) => Number(end.toPrecision(5))).join(",") });
  }

  type(event) {
    if (event.key === "Escape") return this.front.state.set({ box: "" });
    if (event.key === "Enter") return document.getElementById("mechanism").scrollIntoView({ behavior: "smooth" });
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const run = this.front.runs.find((one) => one.name === this.front.state.get("run")) ?? this.front.runs[0];
    const { xs } = this.front.places[run.index];
    const order = run.members.filter((i) => xs[i] >= 0).sort((a, b) => xs[a] - xs[b]);
    if (!order.length) return;
    const current = run.find(this.front.state.get("id"));
    const from = order.includes(current)
      ? order.indexOf(current)
      : order.indexOf(least(order, (i) => Math.abs(xs[i] - (xs[current] ?? 0)))) - step;
    const i = order[Math.min(Math.max(from + step, 0), order.length - 1)];
    this.front.state.set({ run: run.name, id: run.digests[i] });
    const { left, top } = this.front.over.getBoundingClientRect();
    this.halo({ run, i });
    this.tip.show(left + xs[i], top + this.front.places[run.index].ys[i], ...this.said({ run, i }));
  }
}
