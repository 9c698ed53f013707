// The panel of one mechanism: results, graph, costs, lineage, trainings, and export commands.

const MOST_STEPS = 40;

class Mechanism {
  constructor(root, { runs, state, roles }) {
    Object.assign(this, { root, runs, state, roles });
    state.watch((changed) => (changed.has("id") || changed.has("run")) && this.show());
    this.show();
  }

  show() {
    const { run, i } = this.state.selected(this.runs);
    const empty = [html("h2", {}, "One mechanism"), html("p", { class: "note" }, "Select one in the front or in the table.")];
    this.root.replaceChildren(...nodes(i < 0 ? empty : this.all(run, i)));
  }

  all(run, i) {
    const steps = lineage(run, i);
    const genome = run.genome(i);
    const why = this.explanations(run, i);
    const titles = [...(run.titles[run.digests[i]] ?? []), run.isMember[i] && "in the front", this.runs.length > 1 && `run ${run.name}`];
    const isNew = steps[0].from >= 0 && "thick edge: not in its parent";
    return [
      html("h2", {}, run.called(i), html("small", {}, titles.filter(Boolean).join(" · "))),
      html("p", { class: "formula large" }, run.text("formula", i)),
      run.note(i) && html("p", { class: "note" }, run.note(i)),
      html("div", { class: "panels" },
        panel("What is known", this.known(run, i), "known"),
        panel("Graph", [this.legend(genome), html("div", { class: "scroll graph" }, graph(genome, this.roles, steps[0].fresh))], "graph", isNew),
        panel("Costs beside standard attention", this.costs(run, i), "costs"),
        panel("Take it", this.commands(run, i), "take"),
        panel("Where it came from", this.lineage(run, steps), "lineage"),
        panel("Learning curves", this.curves(run, i), "curves"),
        panel("Trainings", this.trainings(run, i), "trainings"),
        why.length > 0 && panel("Why it works", why, "why")),
    ];
  }

  legend(genome) {
    const roles = new Set(genome.graph_def.map(({ op }) => this.roles[op] ?? "other"));
    return html("p", { class: "roles" }, [...roles].map((role) => html("span", { class: `role-${role}` }, role)));
  }

  known(run, i) {
    const { name } = run.quantities.find(({ isMetric, isObjective }) => isMetric && isObjective) ?? {};
    const leads = Object.entries(run.confirmed(i)).filter(([, metrics]) => metrics[name]?.lead);
    return html("dl", { class: "facts" }, [
      ...metricFacts(run, i),
      ...leads.map(([part, metrics]) => [`over mha, ${part}, equal seeds: ${metrics[name].side}`, metrics[name].lead, `square ${metrics[name].side}`]),
      ...stateFacts(run, i),
      ["proposed", `generation ${run.text("generation", i)} by ${operator(run, i)}`, ""],
      ["digest", run.digests[i], ""],
    ].map(fact));
  }

  costs(run, i) {
    const rows = run.quantities.filter(({ isMetric }) => !isMetric).map(({ name, title, estimate }) => {
      const [text, share] = [run.text(estimate, i), run.share(i, name)];
      if (!text) return null;
      const bar = html("div", { class: "track" }, html("div", { class: "fill" }), html("div", { class: "unit" }));
      const isKnown = Number.isFinite(share);
      bar.firstChild.style.width = `${isKnown ? Math.min(100, 50 * share) : 0}%`;
      return html("tr", {}, html("th", { scope: "row" }, title), html("td", {}, text),
        html("td", { class: "wide" }, bar), html("td", {}, isKnown ? `${share.toFixed(2)} ×` : ""));
    });
    return html("table", { class: "bars" }, html("tbody", {}, rows));
  }

  lineage(run, steps) {
    const { estimate, unit } = run.quantities[0];
    const { values } = run.column(estimate);
    const items = steps.slice(0, MOST_STEPS).map((step) => {
      const gain = step.from >= 0 ? difference(values[step.i] - values[step.from], unit) : "";
      const others = step.others.length > 0 && html("span", { class: "note" }, " with ", step.others.map((j) => link(run, j)));
      const [value] = run.text(estimate, step.i).split(" ±");
      return html("li", {},
        html("p", {}, link(run, step.i), html("b", {}, ` ${operator(run, step.i)}`), others,
          html("span", { class: "value" }, value, gain && html("i", {}, ` ${gain}`))),
        step.texts.length > 0 && edited(step.texts));
    });
    const more = steps.length > MOST_STEPS && html("li", {}, `and ${steps.length - MOST_STEPS} more`);
    return html("ol", { class: "lineage" }, items, more, this.fromStandard(run, steps[0].i));
  }

  /** All edits from standard attention at once. */
  fromStandard(run, i) {
    if (run.reference < 0 || run.reference === i) return null;
    const { texts } = edits(run.genome(run.reference), run.genome(i));
    return html("li", { class: "whole" }, html("p", {}, "altogether, from ", link(run, run.reference)), edited(texts));
  }

  /** A plot for each curve: of the metric, and of each gate over its epochs. */
  curves(run, i) {
    const fresh = run.confirmations.filter(({ digest }) => digest === run.digests[i]);
    const reported = run.trained(i).some((row) => run.training("epochs")[row]);
    if (!reported && !fresh.length) return html("p", { class: "note" }, "No training has reported.");
    const trained = (j, name, kind, words) => run.trained(j).map((row) => ({
      values: trimmed(run.reports(row, name)), kind, words: `${words}, seed ${run.training("seed")[row]}`,
    }));
    const searched = (name) => [
      ...(run.reference >= 0 && run.reference !== i ? trained(run.reference, name, "base", "mha") : []),
      ...trained(i, name, "own", run.called(i)),
    ];
    const confirmed = (name) => fresh.map(({ curves, title, seed }) => ({
      values: trimmed(curves[name].map((value) => value ?? NaN)),
      kind: title === "fresh" ? "fresh" : "fresh long", words: `${title}, seed ${seed}`,
    }));
    const shown = Object.entries(run.curves);
    return [
      html("div", { class: "pair" },
        shown.map(([name, { title, unit }]) => curves([...confirmed(name), ...searched(name)], title, unit === "fraction" ? 100 : 1)),
        shown.length < 2 && curves(searched("loss"), "training loss")),
      html("p", { class: "note" }, "blue: trainings of the search; grey: those of standard attention; green: fresh seeds, dashed under another task or on the test set"),
    ];
  }

  /** Copies of the sections of `nas explain` that contain the mechanism. */
  explanations(run, i) {
    return [...document.querySelectorAll("section:not(#mechanism) .explanation")]
      .filter(({ dataset }) => dataset.of === run.name && dataset.about.split(" ").includes(run.digests[i]))
      .map((answer) => {
        const copy = answer.cloneNode(true);
        copy.querySelectorAll(`[data-id="${run.digests[i]}"]`).forEach((link) => link.closest("tr")?.classList.add("own"));
        return copy;
      });
  }

  trainings(run, i) {
    const word = (name, row) => run.training(name).at(row);
    const rows = run.trained(i).map((row) => [
      "search", run.training("seed")[row], ...["status", "value", "core", "memory", "hardware"].map((name) => word(name, row)),
      [word("reason", row).replaceAll("_", " "), word("error", row)].filter(Boolean).join(": "),
    ]);
    rows.push(...run.confirmations.filter(({ digest }) => digest === run.digests[i]).map(({ cells }) => cells));
    if (!rows.length) return html("p", { class: "note" }, "It was not trained.");
    const metric = run.quantities.find(({ isMetric }) => isMetric)?.title ?? "";
    const heads = ["part", "seed", "status", metric, "core time", "memory", "hardware", "error"];
    const used = (cells) => cells.filter((_, j) => rows.some((row) => row[j] !== ""));
    return html("div", { class: "scroll low" }, html("table", {},
      html("thead", {}, html("tr", {}, used(heads).map((head) => html("th", { scope: "col" }, head)))),
      html("tbody", {}, rows.map((row) => html("tr", {}, used(row).map((cell) => html("td", {}, cell)))))));
  }

  /** Commands that show and export it, its source and its genome. */
  commands(run, i) {
    const source = `${run.label}/${run.short(i)}`;
    const lines = [`nas show ${source}`, `nas export ${source} -o champion.py`, `nas evaluate ${source} mha --seeds 5`];
    const [code, genome] = [run.code[run.digests[i]], JSON.stringify(run.genome(i), null, 1)];
    const file = (summary, name, text, type) => html("details", {}, html("summary", {}, summary),
      html("button", { type: "button", onclick: () => save(name, text, type) }, `save ${name}`), html("pre", {}, text));
    return [
      html("pre", { class: "commands" }, lines.join("\n")),
      code
        ? file("source, which needs torch alone", `${run.short(i)}.py`, code)
        : html("p", { class: "note" }, "Its source is not on this page; the second command writes it."),
      file("genome", `${run.short(i)}.json`, genome, "application/json"),
    ];
  }
}

/** A curve without the missing values at both ends, which are epochs of other tasks. */
function trimmed(values) {
  const isKnown = (value) => !Number.isNaN(value);
  return values.slice(Math.max(0, values.findIndex(isKnown)), values.findLastIndex(isKnown) + 1);
}

/** A difference with its sign, fractions in percentage points; empty if it is unknown. */
function difference(value, unit) {
  if (!Number.isFinite(value)) return "";
  const shown = unit === "fraction" ? Math.abs(100 * value).toFixed(1) : Math.abs(value).toFixed(3);
  return (value < 0 ? "−" : "+") + shown;
}

function operator(run, i) {
  return run.text("operator", i).replaceAll("_", " ");
}

function edited(texts) {
  return html("p", { class: "edits" }, texts.map((text) => html("code", {}, text)));
}

function panel(title, content, name, note) {
  return html("div", { class: `panel ${name}` }, html("h3", {}, title, note && html("small", {}, note)), content);
}

function link(run, i) {
  const digest = run.digests[i];
  return html("a", { href: `#run=${encodeURIComponent(run.name)}&id=${digest}`, "data-run": run.name, "data-id": digest }, run.called(i));
}
