// The tooltip of the mechanism under the pointer, or selected by keyboard.

class Tip {
  constructor(element) {
    this.element = element;
  }

  /** Show lines beside a point of the window. */
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

/** A mechanism in brief: score, estimate and fresh means, then costs. */
function brief(run, i, isOneOfSeveral) {
  const titles = run.titles[run.digests[i]] ?? [];
  const about = [...titles, isOneOfSeveral && `run ${run.name}`].filter(Boolean).join(" · ");
  return [
    html("p", { class: "tip-title" }, html("b", {}, run.called(i)), about && html("span", {}, about)),
    html("p", { class: "formula" }, run.text("formula", i)),
    html("dl", {}, [...metricFacts(run, i), ...costFacts(run, i), ...stateFacts(run, i)].map(fact)),
  ];
}

/** Name, value and shape of the mark: estimate, score and fresh means of each objective. */
function metricFacts(run, i) {
  const seeds = run.column("seeds").values[i] || run.trained(i).length;
  return run.quantities.filter((one) => one.isObjective && one.isMetric).flatMap(({ name, title, estimate, score }) => [
    !Number.isNaN(run.column("p_non_dominated").values[i]) && [`${title}, estimate`, run.text(estimate, i), "disc"],
    [`${title}, score of ${seeds} seed${seeds === 1 ? "" : "s"}`, run.text(score, i), "ring"],
    ...Object.entries(run.confirmed(i)).map(([part, { [name]: fresh }]) =>
      fresh && [`${title}, ${part} (${fresh.seeds} seeds)`, fresh.text, "square"]),
  ]).filter((row) => row && row[1]);
}

function costFacts(run, i) {
  return run.quantities.filter((one) => one.isObjective && !one.isMetric).map(({ name, title, estimate }) => {
    const share = run.share(i, name);
    return [title, run.text(estimate, i) + (Number.isFinite(share) ? `  (${share.toFixed(2)} × mha)` : ""), ""];
  });
}

/** The probability of being in the front, exceeded limits, and the state of one without a result. */
function stateFacts(run, i) {
  const [p, state] = [run.text("p_non_dominated", i), run.text("state", i)];
  const beyond = run.beyond(i).join(", ");
  return [p && ["p(front)", p, ""], beyond && ["outside the limits", beyond, ""], state !== "ok" && ["training", state, ""]].filter(Boolean);
}

function fact([name, value, shape]) {
  return [html("dt", { class: shape }, name), html("dd", {}, value)];
}
