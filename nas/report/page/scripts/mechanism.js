// One mechanism: what it is, where it came from, what it gave, what it costs, how to take it.

const MOST_STEPS = 40;

class Mechanism {
  constructor(root, { runs, state, roles }) {
    Object.assign(this, { root, runs, state, roles });
    state.watch((changed) => (changed.has("id") || changed.has("run")) && this.show());
    this.show();
  }

  show() {
    const run = this.runs.find((one) => one.name === this.state.get("run"));
    const i = run ? run.find(this.state.get("id")) : -1;
    this.root.replaceChildren(...(i < 0 ? this.nothing() : this.all(run, i)));
  }

  nothing() {
    return [html("h2", {}, "One mechanism"), html("p", { class: "note" }, "Choose one in the front or in the table.")];
  }

  all(run, i) {
    const steps = lineage(run, i);
    const [why, elsewhere] = [this.found(run, i, "explanation"), this.found(run, i, "benchmark")];
    const titles = [...(run.titles[run.digests[i]] ?? []), run.isMember[i] && "in the front"].filter(Boolean);
    return [
      html("h2", {}, run.called(i), html("small", {}, [...titles, this.runs.length > 1 && `run ${run.name}`].filter(Boolean).join(" · "))),
      html("p", { class: "formula large" }, run.of("formula").at(i)),
      run.of("note").at(i) && html("p", { class: "note" }, run.of("note").at(i)),
      html("div", { class: "panels" },
        panel("What is known", this.known(run, i), "known"),
        panel("Graph", [this.key(run.genome(i)), html("div", { class: "scroll graph" }, graph(run.genome(i), this.roles, steps[0].fresh))], "graph", steps[0].from >= 0 && "thick edge: not in its parent"),
        panel("Costs beside standard attention", this.costs(run, i), "costs"),
        panel("Take it", this.take(run, i), "take"),
        panel("Where it came from", this.lineage(run, steps), "lineage"),
        panel("Learning curves", this.curves(run, i), "curves"),
        panel("Trainings", this.trainings(run, i), "trainings"),
        why.length > 0 && panel("Why it works", why, "why"),
        elsewhere.length > 0 && panel("Under other tasks", elsewhere, "elsewhere")),
    ].filter(Boolean);
  }

  /** Which colour is which role, of those in a graph. */
  key(genome) {
    const own = [...new Set(genome.graph_def.map((node) => this.roles[node.op] ?? "other"))];
    return html("p", { class: "roles" }, own.map((role) => html("span", { class: `role-${role}` }, role)));
  }

  known(run, i) {
    const metric = run.objectives.find((one) => one.isMetric);
    const parts = metric ? [...new Set(run.confirmed(i).map((one) => one.title))] : [];
    const leads = parts.map((part) => [part, lead(run, i, metric.name, part)]).filter(([, found]) => found);
    return html("dl", { class: "facts" },
      facts(run, i).filter(([, , kind]) => kind !== "cost" ).map(row),
      leads.map(([part, found]) => row([`over mha, ${part}, equal seeds`, found, "square"])),
      facts(run, i).filter(([name]) => name.startsWith("P ") || name === "training").map(row),
      row(["proposed", `generation ${run.generation(i)} by ${run.of("operator").at(i).replaceAll("_", " ")}`, ""]),
      row(["digest", run.digests[i], ""]));
  }

  costs(run, i) {
    const names = run.quantities.filter((one) => !one.isMetric);
    const rows = names.map(({ name, title, unit }) => {
      const [value, share] = [run.column("costs", name)[i], run.share(i, name)];
      if (Number.isNaN(value)) return null;
      const bar = html("div", { class: "track" }, html("div", { class: "fill" }), html("div", { class: "unit" }));
      const isKnown = Number.isFinite(share);
      bar.firstChild.style.width = `${isKnown ? Math.min(100, 50 * share) : 0}%`;
      return html("tr", {}, html("th", { scope: "row" }, title), html("td", {}, amount(value, unit)),
        html("td", { class: "wide" }, bar), html("td", {}, isKnown ? `${share.toFixed(2)} ×` : ""));
    });
    return html("table", { class: "bars" }, html("tbody", {}, rows));
  }

  lineage(run, steps) {
    const metric = run.objectives[0];
    const values = run.values(metric.name);
    const items = steps.slice(0, MOST_STEPS).map((step) => {
      const gain = step.from >= 0 ? values[step.i] - values[step.from] : NaN;
      const others = step.others.length > 0 && html("span", { class: "note" }, " with ", step.others.map((j) => link(run, j)));
      return html("li", {},
        html("p", {}, link(run, step.i), html("b", {}, ` ${run.of("operator").at(step.i).replaceAll("_", " ")}`), others,
          html("span", { class: "value" }, amount(values[step.i], metric.unit), Number.isFinite(gain) && html("i", {}, ` ${difference(gain, metric.unit)}`))),
        step.texts.length > 0 && html("p", { class: "edits" }, step.texts.map((text) => html("code", {}, text))));
    });
    const more = steps.length > MOST_STEPS && html("li", {}, `and ${steps.length - MOST_STEPS} more`);
    return html("ol", { class: "lineage" }, items, more, this.beside(run, steps));
  }

  /** How far the whole way from standard attention is, as a structural difference. */
  beside(run, [{ i }]) {
    if (run.reference < 0 || run.reference === i) return null;
    const { texts } = edits(run.genome(run.reference), run.genome(i));
    return html("li", { class: "whole" }, html("p", {}, "altogether, from ", link(run, run.reference)),
      html("p", { class: "edits" }, texts.map((text) => html("code", {}, text))));
  }

  /** Of each curve one small plot; a suite has one for each member, over its own epochs. */
  curves(run, i) {
    const own = run.trained(i).filter((row) => run.training("epochs")[row]);
    const fresh = run.confirmed(i);
    if (!own.length && !fresh.length) return html("p", { class: "note" }, "No training has reported.");
    const of = (j, name, kind, words) => run.trained(j).map((row) => ({
      values: reported(run.reports(row, name)), kind, words: `${words}, seed ${run.training("seed")[row]}`,
    }));
    const lines = (name) => [
      ...(run.reference >= 0 && run.reference !== i ? of(run.reference, name, "base", "mha") : []),
      ...of(i, name, "own", run.called(i)),
    ];
    const later = (name) => fresh.map((one) => ({
      values: reported(one.curves[name].map((value) => value ?? NaN)),
      kind: one.title === "fresh" ? "fresh" : "fresh long", words: `${one.title}, seed ${one.seed}`,
    }));
    const shown = Object.entries(run.trainings.curves);
    return [
      html("div", { class: "pair" },
        shown.map(([name, { title, unit }]) => curves([...later(name), ...lines(name)], title, unit === "fraction" ? 100 : 1)),
        shown.length < 2 && curves(lines("loss"), "training loss")),
      html("p", { class: "note" }, "blue: the search's trainings; grey: standard attention's; green: fresh seeds, dashed under another task or on the test set"),
    ];
  }

  /** What was found out by further trainings, as it stands in other sections of the page. */
  found(run, i, kind) {
    return [...document.querySelectorAll(`.${kind}`)]
      .filter((one) => one.dataset.of === run.name && one.dataset.about.split(" ").includes(run.digests[i]))
      .map((one) => {
        const copy = one.cloneNode(true);
        copy.querySelectorAll(`[data-id="${run.digests[i]}"]`).forEach((link) => link.closest("tr")?.classList.add("own"));
        return copy;
      });
  }

  trainings(run, i) {
    const metric = run.objectives.find((one) => one.isMetric);
    const of = (name, row) => run.training(name)[row];
    const word = (name, row) => run.training(name).at(row);
    const value = (metrics) => (metric ? amount(metrics ?? NaN, metric.unit) : "");
    const own = run.trained(i).map((row) => [
      "search", of("seed", row), word("status", row), metric ? value(run.metric(metric.name)[row]) : "",
      duration(of("core", row)), `${human(of("memory", row))}B`, word("hardware", row),
      [word("reason", row).replaceAll("_", " "), word("error", row)].filter(Boolean).join(": "),
    ]);
    const fresh = run.confirmed(i).map((one) => [
      `${one.title} (${one.task})`, one.seed, "ok", value(metric && one.metrics[metric.name]), duration(one.core), "", "", "",
    ]);
    const rows = [...own, ...fresh];
    if (!rows.length) return html("p", { class: "note" }, "It was not trained.");
    const heads = ["part", "seed", "status", metric?.title ?? "", "core time", "memory", "hardware", "error"];
    const used = heads.map((_, j) => rows.some((row) => row[j] !== ""));
    const kept = (cells) => cells.filter((_, j) => used[j]);
    return html("div", { class: "scroll low" }, html("table", {},
      html("thead", {}, html("tr", {}, kept(heads).map((head) => html("th", { scope: "col" }, head)))),
      html("tbody", {}, rows.map((row) => html("tr", {}, kept(row).map((cell) => html("td", {}, cell)))))));
  }

  take(run, i) {
    const source = `${run.label}/${run.short(i)}`;
    const commands = [`nas show ${source}`, `nas export ${source} -o champion.py`, `nas evaluate ${source} mha --seeds 5`];
    const [code, genome] = [run.code[run.digests[i]], JSON.stringify(run.genome(i), null, 1)];
    const files = (name, text, type) => html("button", { type: "button", onclick: () => save(name, text, type) }, `save ${name}`);
    return [
      html("pre", { class: "commands" }, commands.join("\n")),
      code
        ? html("details", {}, html("summary", {}, "source, needs torch alone"), files(`${run.short(i)}.py`, code), html("pre", {}, code))
        : html("p", { class: "note" }, "Its source is not on this page; the second command writes it."),
      html("details", {}, html("summary", {}, "genome"), files(`${run.short(i)}.json`, genome, "application/json"), html("pre", {}, genome)),
    ];
  }
}

/** A curve without the epochs at both ends in which nothing was reported: those of other members. */
function reported(values) {
  const isKnown = (value) => !Number.isNaN(value);
  return values.slice(Math.max(0, values.findIndex(isKnown)), values.findLastIndex(isKnown) + 1);
}

function panel(title, content, name, note) {
  return html("div", { class: `panel ${name}` }, html("h3", {}, title, note && html("small", {}, note)), content);
}

function row([name, value, kind]) {
  return [html("dt", { class: kind }, name), html("dd", {}, value)];
}

/** A link that chooses a mechanism. */
function link(run, i) {
  const digest = run.digests[i];
  return html("a", { href: `#run=${encodeURIComponent(run.name)}&id=${digest}`, "data-run": run.name, "data-id": digest }, run.called(i));
}
