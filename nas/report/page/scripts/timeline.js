// Trainings over time: a line for each worker, a bar for each training.

const TIMELINE = { left: 16, right: 18, top: 8, bottom: 30 };

class Timeline {
  constructor(root, run, { state, tip, runs }) {
    Object.assign(this, { run, state, tip, isOneOfSeveral: runs.length > 1 });
    const [ends, wall] = [run.training("ended"), run.training("wall")];
    this.starts = ends.map((end, row) => end - wall[row]);
    const lines = new Map([...new Set(run.training("worker"))].map((worker, line) => [worker, line]));
    const workers = lines.size;
    this.lines = run.training("worker").map((worker) => lines.get(worker));
    this.canvas = html("canvas", {
      role: "img", "aria-label": `Trainings of ${workers} workers over time`,
      onpointermove: (event) => this.point(event),
      onpointerleave: () => this.tip.hide(),
      onclick: (event) => this.pick(event),
    });
    const title = this.isOneOfSeveral ? `Workers of run ${run.name}` : "Workers";
    root.append(html("h3", {}, title, html("small", {}, `${workers}, minutes since the start`)), html("div", {}, this.canvas));
    this.line = Math.max(2, Math.min(22, 320 / workers));
    this.height = TIMELINE.top + TIMELINE.bottom + this.line * workers;
    this.canvas.style.height = `${this.height}px`;
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    state.watch((changed) => (changed.has("id") || changed.has("run")) && this.draw());
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return;
    const { run, height } = this;
    const [ends, mechanisms, statuses] = ["ended", "mechanism", "status"].map((name) => run.training(name));
    const context = sharpened(this.canvas, width, height);
    const colour = colours(this.canvas);
    const last = ends.reduce((most, end) => Math.max(most, end), 0);
    this.x = new Scale(0, last || 1, TIMELINE.left, width - TIMELINE.right);
    const selected = this.state.selected([run]).i;
    const hues = { ok: colour(`run-${run.index % 6}`), stopped: colour("muted"), failed: colour("bad") };
    const gap = this.line > 6 ? 2 : 0;
    for (let row = 0; row < ends.length; row++) {
      const [from, to] = [this.x.place(this.starts[row]), this.x.place(ends[row])];
      const [status, isSelected] = [statuses[row], mechanisms[row] === selected];
      context.fillStyle = isSelected ? colour("named") : hues[status];
      context.globalAlpha = isSelected || status !== "ok" ? 1 : row % 2 ? 0.55 : 0.75;
      context.fillRect(from, TIMELINE.top + this.lines[row] * this.line + gap, Math.max(0.7, to - from - 0.6), this.line - 2 * gap);
    }
    context.globalAlpha = 1;
    Object.assign(context, { fillStyle: colour("muted"), font: `12px ${getComputedStyle(this.canvas).fontFamily}`, textAlign: "center" });
    const minutes = new Scale(0, last / 60 || 1, TIMELINE.left, width - TIMELINE.right);
    for (const value of minutes.ticks(width < 560 ? 4 : 10)) context.fillText(tick(value), minutes.place(value), height - 10);
  }

  /** The training under the pointer, or -1. */
  under(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const worker = Math.floor((event.clientY - top - TIMELINE.top) / this.line);
    const moment = this.x.value(event.clientX - left);
    const ends = this.run.training("ended");
    return this.lines.findIndex(
      (line, row) => line === worker && this.starts[row] <= moment && moment <= ends[row],
    );
  }

  point(event) {
    const row = this.under(event);
    if (row < 0) return this.tip.hide();
    const [worker, took, status] = ["worker", "took", "status"].map((name) => this.run.training(name).at(row));
    const mechanism = brief(this.run, this.run.training("mechanism")[row], this.isOneOfSeveral);
    this.tip.show(event.clientX, event.clientY, ...mechanism, html("p", {}, `${worker}: ${took}, ${status}`));
  }

  pick(event) {
    const row = this.under(event);
    if (row >= 0) this.state.select(this.run, this.run.training("mechanism")[row]);
  }
}
