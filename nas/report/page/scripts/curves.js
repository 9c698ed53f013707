// Curves over epochs: of one mechanism's trainings, before those of standard attention.

const [CURVES_WIDTH, CURVES_HEIGHT] = [460, 250];

/** Curves as SVG; each has values by epoch and a kind, which gives its colour. */
function curves(lines, title, factor = 1) {
  const longest = Math.max(2, ...lines.map((line) => line.values.length));
  const x = new Scale(1, longest, 50, CURVES_WIDTH - 14);
  const [low, high] = range(...lines.map((line) => line.values.map((value) => value * factor)));
  const y = Scale.over(low, high, CURVES_HEIGHT - 38, 28);
  const up = y.ticks(5).map((value) => [
    svg("line", { class: "grid", x1: 50, x2: CURVES_WIDTH - 14, y1: y.place(value), y2: y.place(value) }),
    svg("text", { class: "tick", x: 42, y: y.place(value) + 4, "text-anchor": "end" }, tick(value)),
  ]);
  const every = Math.ceil(longest / 12);
  const across = Array.from({ length: longest }, (_, i) => i + 1).filter((epoch) => (epoch - 1) % every === 0);
  return svg("svg", { viewBox: `0 0 ${CURVES_WIDTH} ${CURVES_HEIGHT}`, role: "img" },
    svg("title", {}, `${title} by epoch`), up,
    across.map((epoch) => svg("text", { class: "tick", x: x.place(epoch), y: CURVES_HEIGHT - 20, "text-anchor": "middle" }, epoch)),
    svg("text", { class: "axis", x: 4, y: 14 }, title),
    svg("text", { class: "axis", x: CURVES_WIDTH - 14, y: CURVES_HEIGHT - 4, "text-anchor": "end" }, "epoch"),
    lines.filter((line) => line.values.length).map((line) => curve(line, x, y, factor)));
}

function curve({ values, kind, words }, x, y, factor) {
  const places = values.map((value, i) => [x.place(i + 1), y.place(value * factor)]).filter(([, at]) => Number.isFinite(at));
  const path = places.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
  return svg("g", { class: `curve ${kind}` }, svg("title", {}, words), svg("path", { d: path }),
    places.map(([a, b]) => svg("circle", { cx: a, cy: b, r: 2.6 })));
}
