// What the workers did when: a line a worker, a bar a training.

const TIMELINE_MARGIN = { left: 16, right: 18, top: 8, bottom: 30 };

class Timeline {
  constructor(root, run, { state, tip, runs }) {
    Object.assign(this, { root, run, state, tip, isOneOfSeveral: runs.length > 1 });
    this.workers = [...new Set(run.training("worker").words)];
    this.canvas = html("canvas", {
      role: "img", "aria-label": `What ${this.workers.length} workers did when`,
      onpointermove: (event) => this.point(event),
      onpointerleave: () => this.tip.hide(),
      onclick: (event) => this.pick(event),
    });
    const title = this.isOneOfSeveral ? `Workers of run ${run.name}` : "Workers";
    root.append(html("h3", {}, title, html("small", {}, `${this.workers.length}, minutes since the start`)), html("div", {}, this.canvas));
    this.line = Math.max(2, Math.min(22, 320 / this.workers.length));
    this.height = TIMELINE_MARGIN.top + TIMELINE_MARGIN.bottom + this.line * this.workers.length;
    this.canvas.style.height = `${this.height}px`;
    new IntersectionObserver((found) => this.see(found.at(-1).isIntersecting)).observe(this.canvas);
    new ResizeObserver(() => this.due()).observe(this.canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.due());
    state.watch((changed) => (changed.has("id") || changed.has("run")) && this.due());
  }

  /** What has changed is drawn when somebody sees it. */
  see(isSeen) {
    this.isSeen = isSeen;
    if (isSeen && this.isDue) this.draw();
  }

  due() {
    this.isDue = true;
    if (this.isSeen) this.draw();
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return;
    this.isDue = false;
    const [wall, height] = [this.run.training("wall"), this.height];
    this.ends = this.run.training("ended");
    this.starts ??= this.ends.map((end, row) => end - wall[row]);
    const context = sharpened(this.canvas, width, height);
    const colour = colours(this.canvas);
    const last = this.ends.reduce((most, end) => Math.max(most, end), 0);
    this.x = new Scale(0, last || 1, TIMELINE_MARGIN.left, width - TIMELINE_MARGIN.right);
    const { places } = this.run.training("worker");
    const statuses = this.run.training("status");
    const chosen = this.run.name === this.state.get("run") ? this.run.find(this.state.get("id")) : -1;
    const own = this.run.training("mechanism");
    const hues = { ok: colour(`run-${this.run.index % 6}`), stopped: colour("muted"), failed: colour("bad") };
    for (let row = 0; row < places.length; row++) {
      const [from, to] = [this.x.place(this.starts[row]), this.x.place(this.ends[row])];
      context.fillStyle = own[row] === chosen ? colour("named") : hues[statuses.at(row)];
      context.globalAlpha = own[row] === chosen || statuses.at(row) !== "ok" ? 1 : row % 2 ? 0.55 : 0.75;
      const gap = this.line > 6 ? 2 : 0;
      context.fillRect(from, TIMELINE_MARGIN.top + places[row] * this.line + gap, Math.max(0.7, to - from - 0.6), this.line - 2 * gap);
    }
    context.globalAlpha = 1;
    Object.assign(context, { fillStyle: colour("muted"), font: `12px ${getComputedStyle(this.canvas).fontFamily}`, textAlign: "center" });
    const minutes = new Scale(0, last / 60 || 1, TIMELINE_MARGIN.left, width - TIMELINE_MARGIN.right);
    for (const value of minutes.ticks(width < 560 ? 4 : 10)) context.fillText(tick(value), minutes.place(value), height - 10);
  }

  /** The training under the pointer, or -1. */
  under(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const worker = Math.floor((event.clientY - top - TIMELINE_MARGIN.top) / this.line);
    const moment = this.x.value(event.clientX - left);
    const { places } = this.run.training("worker");
    return places.findIndex((place, row) => place === worker && this.starts[row] <= moment && moment <= this.ends[row]);
  }

  point(event) {
    const row = this.under(event);
    if (row < 0) return this.tip.hide();
    const about = `${this.run.training("worker").at(row)}: ${duration(this.run.training("wall")[row])}, ${this.run.training("status").at(row)}`;
    this.tip.show(event.clientX, event.clientY, ...brief(this.run, this.run.training("mechanism")[row], this.isOneOfSeveral), html("p", {}, about));
  }

  pick(event) {
    const row = this.under(event);
    if (row < 0) return;
    this.state.set({ run: this.run.name, id: this.run.digests[this.run.training("mechanism")[row]] });
  }
}
