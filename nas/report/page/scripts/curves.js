// Learning curves of one mechanism's trainings, drawn over those of standard attention.

const [CURVES_WIDTH, CURVES_HEIGHT] = [460, 250];

/** Curves as SVG; each has values by epoch and a kind, which gives its colour. */
function curves(lines, title, factor = 1) {
  const longest = Math.max(2, ...lines.map(({ values }) => values.length));
  const x = new Scale(1, longest, 50, CURVES_WIDTH - 14);
  const y = Scale.over(range(...lines.map(({ values }) => values.map((value) => value * factor))), CURVES_HEIGHT - 38, 28);
  const every = Math.ceil(longest / 12);
  const epochs = Array.from({ length: Math.ceil(longest / every) }, (_, i) => 1 + i * every);
  return svg("svg", { viewBox: `0 0 ${CURVES_WIDTH} ${CURVES_HEIGHT}`, role: "img" },
    svg("title", {}, `${title} by epoch`), axis({ y, from: 50, to: CURVES_WIDTH - 14, ticks: 5 }),
    epochs.map((epoch) => svg("text", { class: "tick", x: x.place(epoch), y: CURVES_HEIGHT - 20, "text-anchor": "middle" }, epoch)),
    svg("text", { class: "axis", x: 4, y: 14 }, title),
    svg("text", { class: "axis", x: CURVES_WIDTH - 14, y: CURVES_HEIGHT - 4, "text-anchor": "end" }, "epoch"),
    lines.filter(({ values }) => values.length).map(({ values, kind, words }) => {
      const places = values.map((value, i) => [x.place(i + 1), y.place(value * factor)]).filter(([, at]) => Number.isFinite(at));
      const path = places.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L");
      return svg("g", { class: `curve ${kind}` }, svg("title", {}, words), svg("path", { d: path && `M${path}` }),
        places.map(([a, b]) => svg("circle", { cx: a, cy: b, r: 2.6 })));
    }));
}
