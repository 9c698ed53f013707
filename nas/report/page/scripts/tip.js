// The tip: what is under the pointer, or was stepped to with the keyboard.

class Tip {
  constructor(element) {
    this.element = element;
  }

  /** Show lines beside a place of the window. */
  show(x, y, ...children) {
    this.element.replaceChildren(...children);
    this.element.hidden = false;
    const { width, height } = this.element.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
    const top = Math.min(Math.max(8, y - height / 2), innerHeight - height - 8);
    this.element.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
  }

  hide() {
    this.element.hidden = true;
  }
}

/** What is known of a mechanism in brief: its three numbers apart, then its costs. */
function brief(run, i, isOneOfSeveral) {
  const titles = run.titles[run.digests[i]] ?? [];
  const about = [...titles, isOneOfSeveral && `run ${run.name}`].filter(Boolean).join(" · ");
  return [
    html("p", { class: "tip-title" }, html("b", {}, run.called(i)), about && html("span", {}, about)),
    html("p", { class: "formula" }, run.of("formula").at(i)),
    html("dl", {}, facts(run, i).map(([name, value, kind]) => [
      html("dt", { class: kind }, name),
      html("dd", {}, value),
    ])),
  ];
}

/** Names, values and kinds: score, estimate, fresh means, costs. */
function facts(run, i) {
  const found = [];
  const seeds = run.trained(i).length;
  for (const one of run.objectives) {
    const { name, title, unit } = one;
    if (!one.isMetric) {
      const share = run.share(i, name);
      const ratio = Number.isFinite(share) ? `  (${share.toFixed(2)} × mha)` : "";
      found.push([title, amount(run.column("costs", name)[i], unit) + ratio, "cost"]);
      continue;
    }
    const estimate = run.column("estimates", name)[i];
    if (!Number.isNaN(estimate))
      found.push([`${title}, estimate`, amount(estimate, unit, run.errors(name)[i]), "disc"]);
    const score = run.scores(name)[i];
    if (!Number.isNaN(score))
      found.push([`${title}, score of ${seeds} seed${seeds === 1 ? "" : "s"}`, amount(score, unit), "ring"]);
    for (const part of new Set(run.confirmed(i).map((own) => own.title))) {
      const fresh = run.fresh(i, name, part);
      if (fresh)
        found.push([`${title}, ${part} (${fresh.count} seeds)`, amount(fresh.mean, unit, fresh.error), "square"]);
    }
  }
  const p = run.of("p")[i];
  if (!Number.isNaN(p)) found.push(["P non-dominated", p.toFixed(2), "cost"]);
  if (run.state(i) !== "ok") found.push(["training", run.state(i), "cost"]);
  return found;
}

/** How much better than standard attention between equal seeds, or an empty text. */
function lead(run, i, name, title) {
  if (run.reference < 0 || i === run.reference) return "";
  const of = (j) => new Map(
    run.confirmed(j).filter((one) => one.title === title).map((one) => [one.repeat, one.metrics[name]]),
  );
  const [own, base] = [of(i), of(run.reference)];
  const gains = [...own].filter(([repeat]) => base.has(repeat)).map(([repeat, v]) => v - base.get(repeat));
  if (!gains.length) return "";
  const { mean, error } = spread(gains);
  return difference(mean, run.quantity(name).unit, error);
}
