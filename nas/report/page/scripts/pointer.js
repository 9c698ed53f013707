// Pointing at the front: hovering, selecting, drawing a box, and stepping through it by keyboard.

const REACH = 18; // maximum distance of a selected point in pixels
const CLICK = 4; // pixels that a pointer may move in a click

class Pointer {
  constructor(front, tip) {
    Object.assign(this, { front, tip, from: null });
  }

  /** The nearest mechanism within reach; marked ones are preferred. */
  nearest(x, y) {
    let [nearest, low] = [null, REACH ** 2];
    for (const run of this.front.runs) {
      const { xs, ys } = this.front.places[run.index];
      const mask = this.front.filter.mask(run);
      const consider = (i, weight) => {
        const distance = weight * ((xs[i] - x) ** 2 + (ys[i] - y) ** 2);
        if (distance < low && mask[i] && xs[i] >= 0) [nearest, low] = [{ run, i }, distance];
      };
      for (let i = 0; i < xs.length; i++) consider(i, 1);
      for (const i of run.marked) consider(i, 0.3);
    }
    return nearest;
  }

  at(event) {
    const { left, top, width } = this.front.over.getBoundingClientRect();
    const scale = this.front.width / width;
    return [(event.clientX - left) * scale, (event.clientY - top) * scale];
  }

  move(event) {
    const [x, y] = this.at(event);
    if (this.from) return this.stretch(x, y);
    const nearest = this.nearest(x, y);
    if (nearest) this.show(nearest, event.clientX, event.clientY);
    else this.leave();
  }

  /** Ring a mechanism, and show its tip beside a point of the window. */
  show({ run, i }, x, y) {
    const { xs, ys } = this.front.places[run.index];
    this.front.ring.replaceChildren(svg("circle", { class: "hover", cx: xs[i], cy: ys[i], r: 9 }));
    const { lead, side } = this.front.fresh(run, i) ?? {};
    const line = lead && html("p", { class: `tip-lead ${side}` }, `${lead} over mha, between equal fresh seeds: ${side}`);
    this.tip.show(x, y, ...nodes([brief(run, i, this.front.runs.length > 1), line || null]));
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
    const { front } = this;
    const [[x0, y0], [x1, y1]] = [this.from, this.at(event)];
    this.from = null;
    if (Math.hypot(x1 - x0, y1 - y0) < CLICK) {
      const nearest = this.nearest(x1, y1);
      if (nearest) front.state.select(nearest.run, nearest.i);
      else front.state.set({ box: "" });
      return;
    }
    const ends = (scale, ...places) => places.map((place) => scale.value(place)).sort((a, b) => a - b);
    const box = [...ends(front.x, x0, x1), ...ends(front.y, y0, y1)];
    front.state.set({ box: box.map((end) => Number(end.toPrecision(5))).join(",") });
  }

  type(event) {
    const { front } = this;
    if (event.key === "Escape") return front.state.set({ box: "" });
    if (event.key === "Enter") return document.getElementById("mechanism").scrollIntoView({ behavior: "smooth" });
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const { run = front.runs[0], i: current } = front.state.selected(front.runs);
    const { xs, ys } = front.places[run.index];
    const order = run.members.filter((i) => xs[i] >= 0).sort((a, b) => xs[a] - xs[b]);
    if (!order.length) return;
    const near = () => order.indexOf(least(order, (i) => Math.abs(xs[i] - (xs[current] ?? 0)))) - step;
    const from = order.includes(current) ? order.indexOf(current) : near();
    const i = order[Math.min(Math.max(from + step, 0), order.length - 1)];
    front.state.select(run, i);
    const { left, top } = front.over.getBoundingClientRect();
    this.show({ run, i }, left + xs[i], top + ys[i]);
  }
}
