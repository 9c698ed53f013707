// The page: decode the data, then let every view look at one state.

async function main() {
  const header = await decode(document.getElementById("data").textContent);
  const runs = header.runs.map((about, index) => new Run(about, header.read, index));
  const state = new State(defaults(runs), known(runs));
  const parts = { runs, state, roles: header.roles, filter: new Filter(runs, state), tip: new Tip(document.getElementById("tip")) };
  const at = (id) => document.getElementById(id);
  new Front(at("chart"), at("axes"), parts);
  new Table(at("rows"), at("filter"), parts);
  new Mechanism(at("mechanism"), parts);
  for (const run of runs) new Timeline(at("timeline"), run, parts);
  links(state);
  toggles(runs, state);
  // What can be read without a script goes only once all that takes its place is there.
  document.documentElement.classList.add("scripted");
  document.documentElement.dataset.ready = Math.round(performance.now());
  watch();
}

/** Axes as in the picture of a front, and the best mechanism of the first run that has one. */
function defaults(runs) {
  const { objectives } = runs[0];
  const up = objectives.find((one) => one.isMetric) ?? objectives[0];
  const others = objectives.filter((one) => one !== up);
  const across = others.find((one) => !one.isMetric) ?? others[0] ?? runs[0].quantities.find((one) => one !== up) ?? up;
  const shown = runs.find((run) => run.front.length) ?? runs[0];
  return {
    run: shown.name, id: shown.front[0] ?? "", x: across.name, y: up.name, as: "estimate",
    box: "", q: "", show: "all", sort: `${up.name}${up.isMetric ? " estimate" : ""}:${up.direction === "min" ? "up" : "down"}`, off: "",
  };
}

/** What an address may name: an old one, or a page of other runs, may have had more. */
function known(runs) {
  const quantities = runs[0].quantities.map((one) => one.name);
  return { run: runs.map((one) => one.name), x: quantities, y: quantities, as: Object.keys(READINGS), show: SHOWN };
}

/** A link to a mechanism chooses it, and leaves everything else in the address. */
function links(state) {
  document.addEventListener("click", (event) => {
    const found = event.target.closest("a[data-id]");
    if (!found) return;
    event.preventDefault();
    state.set({ run: found.dataset.run, id: found.dataset.id });
    const { top, bottom } = document.getElementById("mechanism").getBoundingClientRect();
    if (top > innerHeight || bottom < 0) document.getElementById("mechanism").scrollIntoView({ behavior: "smooth" });
  });
}

/** A run's button takes it away, or brings it back. */
function toggles(runs, state) {
  for (const button of document.querySelectorAll("[data-toggle]"))
    button.addEventListener("click", () => {
      const index = String(runs.findIndex((run) => run.name === button.dataset.toggle));
      const off = new Set(state.get("off").split(",").filter(Boolean));
      if (!off.delete(index)) off.add(index);
      button.setAttribute("aria-pressed", String(!off.has(index)));
      state.set({ off: [...off].join(",") });
    });
}

main();
