// The table's columns: what each shows, how it sorts, and what a CSV file holds of it.

/** A column: `value` to sort and save by, `text` to show; numbers stand at the right. */
function columns(runs) {
  const several = runs.length > 1;
  const base = runs[0];
  return [
    several && word("run", "run", (run) => run.name),
    word("id", "id", (run, i) => run.called(i), (run, i) => run.digests[i]),
    ...base.objectives.flatMap((one) => (one.isMetric ? metric(one, runs) : cost(one, true))),
    ...base.quantities.filter((one) => !base.objectives.includes(one) && !one.isMetric).flatMap((one) => cost(one, false)),
    number("seeds", "seeds", (run, i) => run.trained(i).length || NaN),
    number("p", "P", (run, i) => run.of("p")[i], (value) => value.toFixed(2)),
    number("generation", "gen", (run, i) => run.generation(i)),
    word("operator", "made by", (run, i) => run.of("operator").at(i)),
    word("state", "state", (run, i) => run.state(i)),
    word("formula", "formula", (run, i) => run.of("formula").at(i)),
  ].filter(Boolean);
}

function word(key, title, text, value = text) {
  return { key, title, isNumber: false, text, value };
}

function number(key, title, value, shown = (found) => String(found)) {
  const text = (run, i) => (Number.isNaN(value(run, i)) ? "" : shown(value(run, i)));
  return { key, title, isNumber: true, value, text };
}

/** Estimate with its error, score, and what fresh seeds gave: each in a column of its own. */
function metric({ name, title, unit }, runs) {
  const parts = [...new Set(runs.flatMap((run) => run.confirmations.map((one) => one.title)))];
  const shown = (found) => amount(found, unit);
  const estimate = (run, i) => run.column("estimates", name)[i];
  return [
    {
      ...number(`${name} estimate`, `${title} est.`, estimate),
      text: (run, i) => amount(estimate(run, i), unit, run.errors(name)[i]),
      error: (run, i) => run.errors(name)[i],
    },
    number(`${name} score`, "score", (run, i) => run.scores(name)[i], shown),
    ...parts.map((part) => ({
      ...number(`${name} ${part}`, part, (run, i) => run.fresh(i, name, part)?.mean ?? NaN),
      text: (run, i) => {
        const found = run.fresh(i, name, part);
        return found ? amount(found.mean, unit, found.error) : "";
      },
      error: (run, i) => run.fresh(i, name, part)?.error ?? NaN,
    })),
  ];
}

function cost({ name, title, unit }, isObjective) {
  const found = number(name, title, (run, i) => run.column("costs", name)[i], (value) => amount(value, unit));
  if (!isObjective) return [found];
  return [found, number(`${name} share`, "× mha", (run, i) => run.share(i, name), (value) => value.toFixed(2))];
}

/** The rows as CSV: whole digests, unrounded numbers, errors beside their means. */
function csv(shown, rows) {
  const fields = shown.flatMap((column) => [
    [column.key, column.value],
    ...(column.error ? [[`${column.key} error`, column.error]] : []),
  ]);
  const lines = rows.map(([run, i]) => fields.map(([, value]) => cell(value(run, i))).join(","));
  return [fields.map(([name]) => cell(name)).join(","), ...lines].join("\r\n") + "\r\n";
}

/** A spreadsheet runs a text that begins like a formula; a quote before it says that it is text. */
function cell(value) {
  if (typeof value === "number") return Number.isNaN(value) ? "" : String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
