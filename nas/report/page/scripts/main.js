// Entry point: decodes the data, then creates every view of the shared state.

async function main() {
  const at = (id) => document.getElementById(id);
  const data = await decode(at("data").textContent);
  const { roles, columns } = data;
  const runs = data.runs.map((about, index) => new Run(about, index));
  const defaults = { ...data.defaults, as: "estimate", box: "", q: "", show: "all", off: "" };
  // The address may come from an older page or from a page of other runs.
  const quantities = runs[0].quantities.map(({ name }) => name);
  const known = { run: runs.map(({ name }) => name), x: quantities, y: quantities, as: ["estimate", "score"], show: Object.keys(KINDS) };
  const state = new State(defaults, known);
  const parts = { runs, state, roles, columns, filter: new Filter(runs, state), tip: new Tip(at("tip")) };
  new Front(at("chart"), at("axes"), parts);
  new Table(at("rows"), at("filter"), parts);
  new Mechanism(at("mechanism"), parts);
  for (const run of runs) new Timeline(at("timeline"), run, parts);
  followLinks(state);
  toggleRuns(runs, state);
  // Static parts are hidden once everything that replaces them exists.
  document.documentElement.classList.add("scripted");
  document.documentElement.dataset.ready = Math.round(performance.now());
}

/** A link to a mechanism selects it, and keeps everything else in the address. */
function followLinks(state) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-id]");
    if (!link) return;
    event.preventDefault();
    state.set({ run: link.dataset.run, id: link.dataset.id });
    const panel = document.getElementById("mechanism");
    const { top, bottom } = panel.getBoundingClientRect();
    if (top > innerHeight || bottom < 0) panel.scrollIntoView({ behavior: "smooth" });
  });
}

/** The button of a run hides it, or shows it again. */
function toggleRuns(runs, state) {
  for (const button of document.querySelectorAll("[data-toggle]"))
    button.addEventListener("click", () => {
      const index = String(runs.findIndex(({ name }) => name === button.dataset.toggle));
      const off = new Set(state.get("off").split(",").filter(Boolean));
      if (!off.delete(index)) off.add(index);
      button.setAttribute("aria-pressed", String(!off.has(index)));
      state.set({ off: [...off].join(",") });
    });
}

main();
